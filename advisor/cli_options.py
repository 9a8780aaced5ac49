"""Options that several commands have, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Option(help="Model folder or hub id.")]
Gpu = Annotated[str, typer.Option(help="GPU to tune for (H100, h200, 'RTX 4090', cpu); auto takes what is here.")]
WorkloadName = Annotated[str, typer.Option(help="Preset (chat, rag, code, batch, tiny) or a YAML file.")]
ServeArgs = Annotated[
    str, typer.Option(help="Arguments you serve with today, in one string; the baseline has them and nothing else.")
]
Env = Annotated[
    list[str] | None, typer.Option(help="Environment variable for the server, NAME=VALUE; may be repeated.")
]
Space = Annotated[
    str | None,
    typer.Option(help="Search space: default, scheduler, full, cpu, or a YAML file. On a CPU the default is cpu."),
]
Concurrency = Annotated[int | None, typer.Option(help="Requests in flight, instead of the workload's.")]
Rate = Annotated[float | None, typer.Option(help="Requests a second, instead of the workload's.")]
InputTokens = Annotated[int | None, typer.Option(help="Prompt length, instead of the workload's.")]
OutputTokens = Annotated[int | None, typer.Option(help="Output length, instead of the workload's.")]
NumPrompts = Annotated[int | None, typer.Option(help="Requests of one sample, instead of the workload's.")]
Samples = Annotated[int, typer.Option(help="Samples of each launch, one seed each.", min=1)]
ClientProcesses = Annotated[
    int | None,
    typer.Option(help="Processes that send the load; default: as many as the baseline needs.", min=1),
]
Launcher = Annotated[
    str,
    typer.Option(
        help="How the servers of baseline and search start: warm (forked from a process that has imported vLLM) or cold. "
        "Verdict and proof use cold ones."
    ),
]
EnginePython = Annotated[
    str, typer.Option(help="Python of the environment that holds vLLM; default: this one.", show_default=False)
]
Runs = Annotated[Path, typer.Option(help="Folder for studies: logs, raw results, journal.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines even on a terminal.")]


def given(**options: object) -> dict[str, object]:
    """Options that stand on the command line."""
    return {name: value for name, value in options.items() if value is not None}
