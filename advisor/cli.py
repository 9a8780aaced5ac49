"""The command line: one short function a command (some in cli_steps.py and cli_grids.py); the only place that exits.

Imports of Optuna, rich and the stages stand inside the functions, so that `--help` answers at once.
"""

from __future__ import annotations

import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from advisor import __version__, cli_grids, cli_steps
from advisor import cli_options as options
from advisor.cli_output import columns, note, output_lost, say
from advisor.errors import AdvisorError, Interrupted

FAULT = 70  # EX_SOFTWARE of sysexits.h; python's own, 1, is an answer here: a profile that does not hold, findings of a command

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def main() -> NoReturn:
    """Run a command; every AdvisorError ends here as one line, its hint below, and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where whoever started us ignores it, nobody learns how a child ended
    try:
        app()
    except AdvisorError as error:
        _end(error)
    except KeyboardInterrupt:
        _end(Interrupted("stopped"))
    except SystemExit as ended:
        if ended.code == Interrupted.exit_code:  # typer's, for Ctrl-C inside of a command: it says nothing
            note("advisor: stopped")
        raise
    except Exception as error:
        if isinstance(error, OSError) and _of_typer(error):
            _end(output_lost(error))
        traceback.print_exc()
        note("advisor: a fault of the advisor itself, and no answer")
        sys.exit(FAULT)


def _end(error: AdvisorError) -> NoReturn:
    if isinstance(error, Interrupted) and sys.stderr.isatty():
        note("")  # below the terminal's ^C
    note(f"advisor: {error.problem}")
    for line in (error.hint or "").splitlines():
        note(f"  {line}")
    sys.exit(error.exit_code)


def _of_typer(error: OSError) -> bool:
    """Whether it was typer that failed to print, a help text."""
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    return bool(frame) and frame.tb_frame.f_globals.get("__name__", "").split(".")[0] in ("typer", "click")


def _version(wanted: bool) -> None:
    if wanted:
        say(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find the fastest vLLM serving configuration for a model, a GPU and a workload, by measuring it.

    export, explain, migrate, buckets and merge-grids need neither vLLM nor a GPU.
    """


@app.command(short_help="Search on real servers, prove the winner, write a profile.")
def tune(
    model: options.Model,
    gpu: options.Gpu = "auto",
    workload: options.WorkloadName = "chat",
    budget: Annotated[str, typer.Option(help="Time for all launches: 90s, 30m, 2h.")] = "60m",
    trials: Annotated[int | None, typer.Option(help="Trials of the search, at most.", min=0)] = None,
    serve_args: options.ServeArgs = "",
    env: options.Env = None,
    space: options.Space = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="output_tok_s (default), requests_s, goodput (default with --slo), start_s, or ttft_ms, tpot_ms, itl_ms, "
            "e2el_ms with .mean, .p50, .p90 or .p99. Several with commas: Pareto front, the first one leads."
        ),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            help='Limits for a request\'s ttft, tpot, itl, e2el: "ttft_p99<500ms,tpot_p99<30ms" (p99: for 99% of the '
            "requests). With another objective than goodput, a candidate that breaks them cannot win."
        ),
    ] = None,
    find_load: Annotated[
        str | None,
        typer.Option(
            help="concurrency or rate: raise it on each launch while --slo is met; the highest one is the objective."
        ),
    ] = None,
    concurrency: options.Concurrency = None,
    rate: options.Rate = None,
    input_tokens: options.InputTokens = None,
    output_tokens: options.OutputTokens = None,
    num_prompts: options.NumPrompts = None,
    samples: options.Samples = 2,
    client_processes: options.ClientProcesses = None,
    confirm_launches: Annotated[int, typer.Option(help="Fresh launches of the default and of each finalist, at least.", min=3)] = 3,
    soak: Annotated[
        str | None,
        typer.Option(help="How long a winner must stand its load: 90s, 5m; default: a twentieth of the budget."),
    ] = None,
    quality_command: Annotated[
        str | None,
        typer.Option(
            help="Your own evaluation, run on baseline and winner (ADVISOR_BASE_URL, ADVISOR_MODEL): it ends with exit code 0 and "
            "prints a number; more is better."
        ),
    ] = None,
    quality_tolerance: Annotated[
        float, typer.Option(help="Share of the baseline's score that the winner may fall short by.", min=0, max=1)
    ] = 0.01,
    quality_timeout: Annotated[
        float, typer.Option(help="Seconds that one run of --quality-command may take.", min=1)
    ] = 1800,
    engine_python: options.EnginePython = sys.executable,
    study: Annotated[
        str | None, typer.Option(help="Name of the study; an existing one goes on where it stopped.")
    ] = None,
    runs: options.Runs = Path("runs"),
    output: Annotated[Path, typer.Option(help="Folder for profiles, or the profile's own .yaml file.")] = Path(
        "profiles"
    ),
    profiles: Annotated[
        str | None,
        typer.Option(
            help="Profiles that decide the first launches: a folder, a file, or none. Default: those in --output and those "
            "that come with the advisor."
        ),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage to mirror trials to: sqlite:///file.db, postgresql://...")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            help="Launch again what failed before, or is expected to fail (RUNS/failures.jsonl).",
        ),
    ] = False,
    measure_all: Annotated[
        bool,
        typer.Option("--measure-all", help="Measure every candidate in full, even one that cannot win any more."),
    ] = False,
    launcher: options.Launcher = "warm",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be launched, launch nothing.")] = False,
    plain: options.Plain = False,
) -> None:
    """Launch real servers, search, confirm on fresh launches, write a profile and print the `vllm serve` command."""
    from rich.console import Console

    from advisor import tune as pipeline
    from advisor.report.plan import plan_lines
    from advisor.report.summary import summary
    from advisor.report.terminal import Lines, LiveDisplay
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
        budget=budget, trials=trials, confirm_launches=confirm_launches, serve_args=serve_args, env=env or [], space=space,
        objective=objective, slo=slo, find_load=find_load, samples=samples, client_processes=client_processes,
        engine_python=engine_python, study=study, runs=runs, output=output, storage=storage, seed=seed, retry_failed=retry_failed,
        soak=soak, quality_command=quality_command, quality_tolerance=quality_tolerance, quality_timeout_s=quality_timeout,
        measure_all=measure_all, launcher=launcher, profiles=profiles,
    )  # fmt: skip
    if dry_run:
        plan = pipeline.plan(request, Lines(say, request.objective, request.budget.total_s))
        for line in plan_lines(plan.commands, plan.rejections):
            say(line)
        return
    console = Console()
    if console.is_terminal and not plain:
        with LiveDisplay(console, request.objective, request.budget.total_s) as progress:
            answer = pipeline.tune(request, progress)
    else:
        answer = pipeline.tune(request, Lines(say, request.objective, request.budget.total_s))
    say()
    for line in summary(answer.result, answer.profile_path):
        say(line)


@app.command(short_help="Print a profile's command, or a file for --config.")
def export(
    profile: Annotated[Path, typer.Argument(help="Profile file.")],
    to: Annotated[
        str, typer.Option(help="command, or vllm-yaml for a file that `vllm serve --config` reads.")
    ] = "command",
    model: Annotated[
        str | None, typer.Option(help="The model's place on this machine, if it is not the profile's.")
    ] = None,
) -> None:
    """Print a profile as a `vllm serve` command or as vLLM's own configuration file."""
    from advisor.export import export_profile
    from advisor.serving_profile.store import read_profile

    say(export_profile(read_profile(profile), to, model=model), end="")


@app.command(short_help="Launch a profile again: does it still hold?")
def verify(
    profile: Annotated[Path, typer.Argument(help="Profile file.")],
    model: Annotated[
        str | None, typer.Option(help="The model's place on this machine, if it is not the profile's.")
    ] = None,
    challenger: Annotated[
        bool,
        typer.Option("--challenger", help="Launch the candidate that was not chosen, too: would it be chosen now?"),
    ] = False,
    proof: Annotated[
        bool, typer.Option("--proof", help="Repeat a winner's proof, too: start from empty caches, soak, second start.")
    ] = False,
    launches: Annotated[int, typer.Option(help="Fresh launches of each side.", min=2)] = 3,
    budget: Annotated[str, typer.Option(help="Wall time; a round of launches that would not fit is not begun.")] = "30m",
    tolerance: Annotated[
        float, typer.Option(help="Percent by which a figure may differ from the profile's.", min=0.1, max=50)
    ] = 5.0,
    client_processes: options.ClientProcesses = None,
    engine_python: options.EnginePython = sys.executable,
    runs: options.Runs = Path("runs"),
    output: Annotated[Path | None, typer.Option(help="File for a record of the verification: .json or .yaml.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print that record instead of lines.")] = False,
) -> None:
    """Launch what a profile recommends and its default again. Exit code: 0 it holds, 1 it does not, 5 the launches cannot tell."""
    from advisor.report.terminal import Lines
    from advisor.units import parse_duration_s
    from advisor.verification import document
    from advisor.verification.figure import EXIT_CODES
    from advisor.verification.origin import Wish
    from advisor.verification.run import objective_in
    from advisor.verification.run import verify as verified

    wish = Wish(
        profile, model, challenger, proof, launches, parse_duration_s(budget), tolerance / 100, client_processes,
        engine_python, runs,
    )  # fmt: skip
    if output is not None:
        document.check_writable(output)
    progress = Lines(note, objective_in(profile), wish.budget_s)
    answer = verified(wish, progress)
    if output is not None:
        document.write(output, answer.document)
    say(document.as_json(answer.document) if as_json else "\n".join(answer.lines))
    raise typer.Exit(EXIT_CODES[answer.judgement.held])


@app.command(
    short_help="Say what a vLLM command really does.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def explain(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="What you run, after --: vllm serve MODEL ... or docker run ...; or a file with such a command, serve.sh."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file for `vllm serve --config`, instead of a command.")
    ] = None,
    k8s: Annotated[Path | None, typer.Option(help="A Kubernetes manifest, instead of a command.")] = None,
    container: Annotated[str | None, typer.Option(help="Which container of the manifest, if several run vLLM.")] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(help="0.9.0 or newer; default: the image's tag, the installed vLLM, or the newest known."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="H100, h200, 'RTX 4090', cpu; auto: the one that is here.")] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="The model's config.json, if the model is not a folder that is here.")
    ] = None,
    engine_python: options.EnginePython = sys.executable,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say what a vLLM command really does: resolved values, CUDA graph coverage, and what is lost, ignored or refused."""
    import json

    from advisor.engine.explain import has_errors
    from advisor.inspection.serve_command import Question, answer
    from advisor.report.explain import explain_lines
    from advisor.report.wrapping import wrapped_findings

    question = Question(
        tuple(command or ()), config, k8s, container, vllm_version, gpu, model_config, engine_python
    )  # fmt: skip
    found = answer(question)
    say(json.dumps(found, indent=2) if as_json else "\n".join(wrapped_findings(explain_lines(found), columns())))
    if has_errors(found):
        raise typer.Exit(1)


@app.command(short_help="Rewrite a command for another vLLM version.")
def migrate(
    file: Annotated[
        Path,
        typer.Argument(
            help="Profile, vLLM configuration or Kubernetes manifest (.yaml), or a script with a serve command."
        ),
    ],
    to_version: Annotated[str, typer.Option(help="vLLM version to write for.")],
    from_version: Annotated[
        str | None, typer.Option(help="vLLM version that the file is for; a profile knows its own.")
    ] = None,
    container: Annotated[str | None, typer.Option(help="Which container of a manifest, if several run vLLM.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of the file with comments.")] = False,
) -> None:
    """Rewrite a serve command for another vLLM version; exit code 1 if something could not be carried over."""
    import json

    from advisor.engine.versions import known_version
    from advisor.engine.writing.migrate import migrate as migrated
    from advisor.export.migrate_file import beside, read_source, rewritten, said_of_manifest
    from advisor.report import migrate as report
    from advisor.report.wrapping import wrapped

    source = read_source(file, from_version, container)
    new, note = known_version(to_version)
    result = migrated(source.options, source.env, source.version, new)
    notes = (*source.notes, *([note] if note else []), *said_of_manifest(source, result))
    told = report.Told(result, notes, source.problems, not source.guessed, beside(source, result))
    text = rewritten(source, result)
    if as_json:
        say(json.dumps(report.as_json(told, text, source.model), indent=2))
    else:
        say("\n".join(wrapped(report.comment_lines(told), columns())))
        say(text, end="")
    if not told.complete:
        raise typer.Exit(1)


@app.command(short_help="Plan CUDA-graph capture sizes for your batches.")
def buckets(
    histogram: Annotated[
        Path | None,
        typer.Option(
            help="Batches that run: JSON {tokens: steps}, two columns, a log with the table of --cudagraph-metrics, a benchmark "
            "result with its per-request lists, or a saved /metrics page."
        ),
    ] = None,
    from_metrics: Annotated[
        str | None, typer.Option(help="Address of a running server, instead: http://127.0.0.1:8000.")
    ] = None,
    watch: Annotated[
        str | None, typer.Option(help="With --from-metrics: watch the server for this long (30s), instead of reading one page.")
    ] = None,
    graphs: Annotated[int | None, typer.Option(help="How many graphs; default: as many as pay.", min=1)] = None,
    cover: Annotated[
        int | None, typer.Option(help="Tokens of a batch that must have a graph though it was never seen.", min=1)
    ] = None,
    vllm_version: Annotated[
        str | None, typer.Option(help="0.9.0 or newer; default: that of --log, or the newest known.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="As served; default: vLLM's for the GPU.", min=1)] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="As served; default: vLLM's.", min=1)] = None,
    serve_args: Annotated[str, typer.Option(help="Other arguments you serve with, in one string.")] = "",
    gpu: Annotated[str | None, typer.Option(help="H100, h200, 'RTX 4090'; default: an H100.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="Log of a launch, for version, graph mode, and what its graphs cost.")
    ] = None,
    step_times: Annotated[
        Path | None, typer.Option(help="Measured step times: JSON {tokens: ms} or two columns.")
    ] = None,
    eager_ms: Annotated[float | None, typer.Option(help="Shortest step without a graph, in ms.", min=0)] = None,
    kv_gib: Annotated[
        float | None, typer.Option(help="Size of the KV cache; default: what --log says, or half of the GPU's memory.", min=0.1)
    ] = None,
    kv_pressure: Annotated[
        float, typer.Option(help="Share of the time in which a full KV cache limits the batch.", min=0, max=1)
    ] = 1.0,
    lifetime: Annotated[str, typer.Option(help="Time between two starts of the server.")] = "24h",
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Plan CUDA-graph capture sizes for the batches that a server really runs: sizes, padding saved, memory, flag."""
    from advisor.report.buckets import buckets_lines
    from advisor.search import buckets as planning
    from advisor.search.graph_costs import Prices
    from advisor.units import parse_duration_s

    told = planning.answer(planning.Question(
        histogram, from_metrics, parse_duration_s(watch, "--watch") if watch else None, graphs, vllm_version, max_num_seqs,
        max_num_batched_tokens, serve_args, gpu, log, step_times, eager_ms,
        Prices(pressure=kv_pressure, lifetime_s=parse_duration_s(lifetime, "--lifetime")), kv_gib, cover,
    ))  # fmt: skip
    say(planning.as_json(told) if as_json else "\n".join(buckets_lines(told, columns())))


app.command(short_help="Time decode steps with and without graphs and compilation.")(cli_steps.anatomy)
app.command(short_help="Time every attention backend by phase and batch.")(cli_steps.attention)
app.command(short_help="Launch and measure a whole search space, into one file.")(cli_grids.record)
app.command(name="merge-grids", short_help="Merge the parts of a recorded grid.")(cli_grids.merge_grids)
