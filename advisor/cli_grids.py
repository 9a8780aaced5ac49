"""Commands that record a whole search space: `record` and `merge-grids`. As in cli.py, imports of stages stand inside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from advisor import cli_options as options
from advisor.cli_output import say


def record(
    model: options.Model,
    gpu: options.Gpu = "auto",
    workload: options.WorkloadName = "chat",
    serve_args: options.ServeArgs = "",
    env: options.Env = None,
    space: options.Space = None,
    concurrency: options.Concurrency = None,
    rate: options.Rate = None,
    input_tokens: options.InputTokens = None,
    output_tokens: options.OutputTokens = None,
    num_prompts: options.NumPrompts = None,
    samples: options.Samples = 2,
    client_processes: options.ClientProcesses = None,
    slo: Annotated[str | None, typer.Option(help="Limits that goodput is counted by, as for `advisor tune`.")] = None,
    configs: Annotated[
        int | None, typer.Option(help="How many configurations, spread over the space; default: all.", min=1)
    ] = None,
    launches: Annotated[int, typer.Option(help="Launches of each configuration.", min=1)] = 1,
    shard: Annotated[
        str | None,
        typer.Option(
            help="I/N: every N-th configuration from the I-th on, into a file of its own; for one of several GPUs."
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Wall time of this command; a launch that would not fit is not begun.")
    ] = "24h",
    output: Annotated[
        Path | None, typer.Option(help="The grid's .jsonl file; default: benchmarks/recorded/MODEL-GPU-WORKLOAD.jsonl.")
    ] = None,
    launcher: options.Launcher = "warm",
    engine_python: options.EnginePython = sys.executable,
    runs: options.Runs = Path("runs"),
) -> None:
    """Launch and measure the configurations of a space into one file; run it again to go on where it stopped."""
    import shlex

    from advisor.recording.files import parse_shard
    from advisor.recording.record import Wish
    from advisor.recording.record import record as recorded
    from advisor.report.terminal import Lines
    from advisor.request import request_from_words

    load = options.given(
        concurrency=concurrency,
        rate=rate,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        num_prompts=num_prompts,
    )
    request = request_from_words(
        model=model, gpu=gpu, workload=workload, overrides=load,
        budget=budget, trials=None, confirm_launches=3, serve_args=serve_args, env=env or [], space=space, objective=None,
        slo=slo, samples=samples, client_processes=client_processes, launcher=launcher, engine_python=engine_python,
        runs=runs,
    )  # fmt: skip
    wish = Wish(
        output, configs, launches, parse_shard(shard) if shard else None, num_prompts is not None,
        f"advisor {shlex.join(sys.argv[1:])}",
    )  # fmt: skip
    answer = recorded(request, wish, Lines(say, request.objective, request.budget.total_s))
    say(f"{answer.recorded} of {answer.wanted} configurations are in {answer.path}: {answer.ended}")


def merge_grids(
    files: Annotated[list[Path], typer.Argument(help="Parts of one recorded grid.")],
    output: Annotated[Path, typer.Option(help="File for all of them; may be one of the parts.")],
) -> None:
    """Put recorded parts of a grid (record --shard) into one file, if they were recorded under the same conditions."""
    from advisor.journal import write_atomically
    from advisor.recording.merge import merged

    text, launches = merged(files)
    write_atomically(output, text)
    say(f"{output}: {launches} launches")
