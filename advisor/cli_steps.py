"""Commands that time single steps of an engine: `anatomy` and `attention`. As in cli.py, imports of stages stand inside."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from advisor import cli_options as options
from advisor.cli_output import note, say
from advisor.errors import Interrupted

ModelOrFile = Annotated[str | None, typer.Option(help="Model folder or hub id.")]
FromFile = Annotated[
    Path | None, typer.Option("--from", help="Print and draw what is in this JSON file again; measures nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the JSON instead of tables.")]


def anatomy(
    model: ModelOrFile = None,
    gpu: options.Gpu = "auto",
    serve_args: Annotated[
        str, typer.Option(help="Other arguments of `vllm serve`, in one string; not those that the modes differ in.")
    ] = "",
    env: options.Env = None,
    modes: Annotated[
        str | None,
        typer.Option(help="With commas: none, compile, full (graphs only), piecewise, both; default: all of them."),
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            help="Requests that decode together: 1,8,64; default: powers of two up to the most vLLM serves at once."
        ),
    ] = None,
    context: Annotated[int, typer.Option(help="Tokens of each request in the KV cache.", min=1)] = 512,
    steps: Annotated[int, typer.Option(help="Decode steps that are timed at each batch size.", min=4)] = 60,
    output: Annotated[
        Path | None,
        typer.Option(help="JSON file; one that is there is continued. Default: runs/anatomy-GPU-MODEL.json."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="The plot, NAME.svg, .png or .pdf; default: an .svg beside the JSON file.")
    ] = None,
    from_file: FromFile = None,
    as_json: AsJson = False,
    engine_python: options.EnginePython = sys.executable,
) -> None:
    """Measure what a decode step is made of, with CUDA graphs, torch.compile, both and neither, and the floor that memory sets."""
    import shlex

    from advisor.anatomy import modes as planning
    from advisor.anatomy.document import read
    from advisor.anatomy.plot import plot_anatomy
    from advisor.anatomy.run import Wish
    from advisor.anatomy.run import anatomy as measured
    from advisor.anatomy.table import told
    from advisor.engine.options import split_serve_args
    from advisor.inspection.gpu_names import slug_of
    from advisor.report.plot_files import check_plot
    from advisor.request import parse_env
    from advisor.stepping.files import check_source, text

    check_source(
        model,
        from_file,
        {"serve_args": serve_args, "env": env, "modes": modes, "batch_sizes": batch_sizes, "output": output},
    )
    if plot:
        check_plot(plot)  # before anything is measured, which takes long
    if from_file is not None:
        document, path = read(from_file), from_file
    else:
        slug_of(gpu)
        wish = Wish(
            model or "", gpu, tuple(split_serve_args(serve_args)), parse_env(env or []), planning.parse_modes(modes),
            planning.parse_batch_sizes(batch_sizes), context, steps, engine_python, output,
            f"advisor {shlex.join(sys.argv[1:])}",
        )  # fmt: skip
        with _ctrl_c_is_told():
            document, path = measured(wish, note)
    drawn = plot_anatomy(document, path, plot, note)
    say(text(document) if as_json else f"{told(document)}\n\n" + "\n".join(map(str, filter(None, (path, drawn)))))


def attention(
    model: ModelOrFile = None,
    gpu: options.Gpu = "auto",
    serve_args: Annotated[
        str, typer.Option(help="Other arguments of `vllm serve`, in one string; not the attention backend.")
    ] = "",
    env: options.Env = None,
    backends: Annotated[
        str | None,
        typer.Option(
            help="With commas: FLASHINFER,FLASH_ATTN:2; default: all that vLLM accepts. Its own choice is always measured."
        ),
    ] = None,
    phases: Annotated[str | None, typer.Option(help="With commas: decode, prefill, mixed; default: all.")] = None,
    batch_sizes: Annotated[
        str | None, typer.Option(help="Requests that decode together, or prompts in a step: 1,16,64.")
    ] = None,
    contexts: Annotated[
        str | None, typer.Option(help="Tokens of each request in the KV cache, or of each prompt: 512,4096.")
    ] = None,
    chunk: Annotated[int, typer.Option(help="Tokens of the prompt in a mixed step.", min=1)] = 1024,
    steps: Annotated[
        int,
        typer.Option(
            help="Decode steps timed for each figure; half as many of mixed ones, a quarter of prefill.", min=4
        ),
    ] = 30,
    budget: Annotated[str, typer.Option(help="Time for everything: 90s, 15m; the backends share it.")] = "15m",
    output: Annotated[
        Path | None,
        typer.Option(help="JSON file; one that is there is continued. Default: runs/attention-GPU-MODEL.json."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the heat map: NAME.svg, .png or .pdf.")] = None,
    from_file: FromFile = None,
    as_json: AsJson = False,
    engine_python: options.EnginePython = sys.executable,
) -> None:
    """Measure every legal attention backend in decode, prefill and mixed steps, and show where each wins."""
    import shlex

    from advisor.attention import grid
    from advisor.attention.arms import parse_backends
    from advisor.attention.document import read
    from advisor.attention.plot import write_heat_map
    from advisor.attention.run import Wish
    from advisor.attention.run import attention as measured
    from advisor.attention.table import told
    from advisor.engine.options import split_serve_args
    from advisor.inspection.gpu_names import slug_of
    from advisor.report.plot_files import check_plot
    from advisor.request import parse_env
    from advisor.stepping.files import check_source, text
    from advisor.units import parse_duration_s

    check_source(
        model,
        from_file,
        {"serve_args": serve_args, "env": env, "backends": backends, "phases": phases, "batch_sizes": batch_sizes,
         "contexts": contexts, "output": output},
    )  # fmt: skip
    if plot:
        check_plot(plot)  # before anything is measured, which takes long
    if from_file is not None:
        document, path = read(from_file), from_file
    else:
        slug_of(gpu)
        wanted = grid.Wanted(
            grid.parse_phases(phases), grid.parse_numbers("--batch-sizes", batch_sizes),
            grid.parse_numbers("--contexts", contexts), chunk, steps,
        )  # fmt: skip
        wish = Wish(
            model or "", gpu, tuple(split_serve_args(serve_args)), parse_env(env or []), parse_backends(backends), wanted,
            parse_duration_s(budget, "--budget"), engine_python, output, f"advisor {shlex.join(sys.argv[1:])}",
        )  # fmt: skip
        with _ctrl_c_is_told():
            document, path = measured(wish, note)
    say(text(document) if as_json else f"{told(document)}\n\n{path}")
    if plot:  # after all figures are told, which it cannot spoil then
        write_heat_map(document, plot)
        say("" if as_json else str(plot), end="" if as_json else "\n")


@contextlib.contextmanager
def _ctrl_c_is_told() -> Iterator[None]:
    """Typer would end the command without a word. Each engine's process has ended with its own context by then."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped; no engine is running", "the same command goes on from what was measured"
        ) from None
