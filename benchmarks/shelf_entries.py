"""The list of profiles that the shelf holds: what `benchmarks/shelf.yaml` says, and the `advisor tune` command of an entry."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from advisor.errors import InputError
from advisor.units import parse_duration_s
from advisor.yaml_files import read_model
from benchmarks.model_folders import ARCHITECTURES, demo_model

LIST = Path(__file__).with_name("shelf.yaml")
MODELS = (*ARCHITECTURES, *demo_model.SIZES)
_OPTIONS = ("concurrency", "rate", "input_tokens", "output_tokens", "num_prompts", "client_processes", "space", "objective", "slo")


class Entry(BaseModel):
    """One tune. What is not given is the workload's or the advisor's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(description="a folder of benchmarks/model_folders.py, or demo or tiny")
    workload: str = Field(description="a preset")
    concurrency: int | None = None
    rate: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    num_prompts: int | None = None
    client_processes: int | None = None
    serve_args: str = Field(default="", description="after those of the whole shelf")
    env: dict[str, str] = Field(default_factory=dict)
    space: str | None = Field(default=None, description="None: the advisor's own for this machine")
    objective: str | None = None
    slo: str | None = None
    trials: int | None = Field(default=None, ge=0)
    budget: str = Field(description="of launches, as for advisor tune")
    minutes: float = Field(gt=0, description="GPU minutes that the whole tune is expected to take")
    why: str = Field(min_length=1, description="it is on the shelf, and why with this load")

    @field_validator("model")
    @classmethod
    def _known_model(cls, value: str) -> str:
        if value not in MODELS:
            raise ValueError(f"{value!r} is none of {', '.join(MODELS)}")
        return value

    @field_validator("budget")
    @classmethod
    def _duration(cls, value: str) -> str:
        try:
            parse_duration_s(value)
        except InputError as error:
            raise ValueError(error.problem) from None
        return value


class Shelf(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["advisor.shelf/1"] = Field(alias="schema")
    gpu: str = Field(description="for advisor tune, and the folder of the profiles")
    serve_args: str = ""
    samples: int = Field(default=1, ge=1)
    entries: dict[str, Entry] = Field(min_length=1)


def read_shelf(path: Path = LIST) -> Shelf:
    """Raises InputError with file and line; of several mistakes, all are listed."""
    return read_model(path, "shelf", Shelf)


def chosen(shelf: Shelf, names: list[str]) -> dict[str, Entry]:
    """The entries of these names, in the list's order; all where no name is given. Raises InputError for one that is none."""
    unknown = [name for name in names if name not in shelf.entries]
    if unknown:
        raise InputError(f"{', '.join(unknown)}: no such entry", f"there is: {', '.join(shelf.entries)}")
    return {name: entry for name, entry in shelf.entries.items() if not names or name in names}


def tune_words(
    name: str, shelf: Shelf, model: Path, profile: Path, runs: Path, engine_python: str, study: str
) -> list[str]:
    """The whole command."""
    entry = shelf.entries[name]
    words = ["advisor", "tune", "--model", f"./{model}" if not model.is_absolute() else str(model), "--gpu", shelf.gpu]
    words += ["--workload", entry.workload]
    for option in _OPTIONS:
        value = getattr(entry, option)
        words += [f"--{option.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)] if value else []
    words += ["--trials", str(entry.trials)] if entry.trials is not None else []
    serve_args = " ".join(filter(None, (shelf.serve_args.strip(), entry.serve_args.strip())))
    words += ["--serve-args", serve_args] if serve_args else []
    for variable, value in entry.env.items():
        words += ["--env", f"{variable}={value}"]
    words += ["--samples", str(shelf.samples), "--budget", entry.budget, "--study", study]
    return [*words, "--runs", str(runs), "--output", str(profile), "--engine-python", engine_python, "--plain"]


def study_names(name: str, shelf: Shelf) -> list[str]:
    """The study's, and those that are taken where it was begun on another machine, whose launches cannot be mixed with these."""
    return [f"{name}-{shelf.gpu}{suffix}" for suffix in ("", "-2", "-3", "-4")]


def told(name: str, shelf: Shelf) -> str:
    """One line for a list."""
    entry = shelf.entries[name]
    load = [f"{option} {getattr(entry, option)}" for option in _OPTIONS if getattr(entry, option) is not None]
    parts = [entry.model, entry.workload, *load, *shlex.split(entry.serve_args)]
    return f"{name}: {' '.join(parts)}; about {entry.minutes:g} min"
