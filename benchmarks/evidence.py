"""The commands behind docs/evidence that want an H200, in turn, within a time: `python -m benchmarks.evidence [NAME ...]`.

    python -m benchmarks.evidence                                           # what there is, and how long it takes
    python -m benchmarks.evidence launcher-8B grid-8B-640 --stop 25m        # what still runs then gets Ctrl-C

Each command has a log of its own and writes its file as it goes; most go on from it when they are run again. A GPU of several is
chosen with CUDA_VISIBLE_DEVICES. Exit code: 0 when nothing failed, 1 when something did, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from advisor.errors import AdvisorError, InputError
from advisor.study.endings import termination_is_ctrl_c
from advisor.units import parse_duration_s
from advisor.yaml_files import read_model
from benchmarks.shelf_entries import MODELS
from benchmarks.timed_runs import FAILED, Clock, Ended, model_folder, run_all, run_logged

LIST = Path(__file__).with_name("evidence.yaml")
LEFT = "{left}"
PROGRAMS = ("advisor", "python")
_ENDING_S = 30.0  # kept back from what a command is told, for its last server's stop


class Run(BaseModel):
    """One command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str = Field(description="begins with `advisor` or `python`; {left}: the time that is left")
    models: list[str] = Field(description="folders of benchmarks/model_folders.py, made below models/ where they are missing")
    minutes: float = Field(gt=0, description="for the whole")
    least: float | None = Field(default=None, gt=0, description="minutes that are of use to it; None: all or nothing")
    why: str = Field(min_length=1)

    @field_validator("command")
    @classmethod
    def _known_program(cls, value: str) -> str:
        if value.split()[0] not in PROGRAMS:
            raise ValueError(f"it begins with {value.split()[0]!r}, not with {' or '.join(PROGRAMS)}")
        return value

    @field_validator("models")
    @classmethod
    def _known_models(cls, value: list[str]) -> list[str]:
        if unknown := [name for name in value if name not in MODELS]:
            raise ValueError(f"{unknown[0]!r} is none of {', '.join(MODELS)}")
        return value

    def words(self, left_s: float, engine_python: str) -> list[str]:
        """The whole command. `left_s` may be infinite: then it gets the time that it takes as a whole, twice."""
        told = min(left_s - _ENDING_S, 120 * self.minutes)
        return [*shlex.split(self.command.replace(LEFT, f"{math.floor(max(1.0, told))}s")), "--engine-python", engine_python]


class Runs(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["advisor.evidence/1"] = Field(alias="schema")
    runs: dict[str, Run] = Field(min_length=1)


def read_runs(path: Path = LIST) -> Mapping[str, Run]:
    """Raises InputError with file and line; of several mistakes, all are listed."""
    return read_model(path, "evidence", Runs).runs


def make(names: Sequence[str], runs: Mapping[str, Run], given: argparse.Namespace, clock: Clock) -> list[Ended]:
    """In the order in which they are named."""

    def run(name: str) -> Ended:
        for model in runs[name].models:
            model_folder(model, Path("models"), given.engine_python)
        return run_logged(name, runs[name].words(left_s(), given.engine_python), given.logs, clock)

    def left_s() -> float:
        until = clock.until_stop_s()
        return float("inf") if until is None else until

    def expected_s(name: str) -> float:
        return 60 * (runs[name].least or runs[name].minutes)

    return run_all(names, expected_s, run, clock, say)


def say(text: str) -> None:
    print(text, flush=True)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="what to run, in this order; none: print the list")
    parser.add_argument("--stop", help="time for all: 25m. Nothing begins that it is too short for, and what still runs is ended")
    parser.add_argument("--list", type=Path, default=LIST, help="another list")
    parser.add_argument("--logs", type=Path, default=Path("runs/evidence-logs"))
    parser.add_argument("--engine-python", default=sys.executable, help="python of the environment that holds vLLM")
    return parser.parse_args(words)


def run(given: argparse.Namespace) -> int:
    runs = read_runs(given.list)
    if unknown := [name for name in given.names if name not in runs]:
        raise InputError(f"{', '.join(unknown)}: no such run", f"there is: {', '.join(runs)}")
    if not given.names:
        for name, one in runs.items():
            least = f" (goes on: {one.least:g} at least)" if one.least else ""
            say(f"{name}: about {one.minutes:g} min{least}; {one.why}\n    {one.command}")
        return 0
    stop_s = parse_duration_s(given.stop, "--stop") if given.stop else None
    with termination_is_ctrl_c():
        ended = make(given.names, runs, given, Clock(stop_s, stop_s))
    return int(any(item.state == FAILED for item in ended))


def main(words: Sequence[str]) -> int:
    try:
        return run(_arguments(words))
    except AdvisorError as error:
        print("\n".join(filter(None, (f"evidence: {error.problem}", error.hint))), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("evidence: stopped; the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
