"""Workloads: the presets, a person's own YAML file, what the command line changes, whether a model can take it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from advisor.errors import InputError
from advisor.measure.loads import MOST
from advisor.records import Workload
from advisor.resources import preset_path, presets_folder
from advisor.yaml_files import read_model

_SHORTEST_PROMPT = 4  # tokens; vLLM's random data set needs room for the tokenizer's special tokens
_FEWEST_PROMPTS = 16  # a sample of fewer requests says little about percentiles
_RATE_WINDOW_S = 10  # arrivals of this long make a sample when only a rate is asked for


class WorkloadFile(BaseModel):
    """A workload as people write it. Lengths are tokens, `rate` is requests a second; see docs/workloads.md."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$")
    input_tokens: int = Field(ge=_SHORTEST_PROMPT)
    output_tokens: int = Field(ge=1)
    num_prompts: int = Field(ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    loads: list[float] | None = Field(default=None, exclude=True)  # not a key: `concurrency` or `rate` may be a list
    length_spread: float = Field(default=0.0, ge=0, lt=1)
    shared_prefix_tokens: int = Field(default=0, ge=0)
    warmup_prompts: int = Field(default=0, ge=0)
    source: str = ""
    preemptions: Literal["allowed"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _several_loads(cls, given: Any) -> Any:
        """A list of loads becomes the highest and all of them. What is no list of numbers is left for the field to refuse."""
        if not isinstance(given, dict):
            return given
        if "loads" in given:
            raise ValueError("loads is not a key: give a list as concurrency or rate")
        name = next((name for name in ("concurrency", "rate") if isinstance(given.get(name), list)), None)
        if name is None or not all(isinstance(load, int | float) and load > 0 for load in given[name]):
            return given
        loads = sorted(set(given[name]))
        if not 2 <= len(loads) <= MOST:
            raise ValueError(f"{name} lists {len(loads)} different loads: 2 to {MOST} can share a launch")
        return {**given, name: loads[-1], "loads": [float(load) for load in loads]}

    @model_validator(mode="after")
    def _one_load(self) -> WorkloadFile:
        problem = _load_problem(self.concurrency, self.rate, self.num_prompts)
        if problem:
            raise ValueError(problem)
        return self


def preset_names() -> tuple[str, ...]:
    """Names of the presets that come with the advisor, sorted."""
    return tuple(sorted(path.stem for path in presets_folder().glob("*.yaml")))


def load_workload(
    name_or_path: str,
    *,
    concurrency: int | None = None,
    rate: float | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    num_prompts: int | None = None,
) -> Workload:
    """The preset or file of that name, with what the command line changes.

    Another load scales the number of prompts with it, unless that is given too: a sample of 256 requests for 64 in
    flight would take minutes one at a time. A changed workload gets another name (`chat-c8`)
    and so another profile file.
    Raises InputError: unknown preset, unreadable file or mistakes in it (all of them, with lines), values out of range.
    """
    base = _read(name_or_path)
    lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens, "num_prompts": num_prompts}
    _check_ranges({**lengths, "concurrency": concurrency}, rate)
    changes: dict[str, object] = {name: value for name, value in lengths.items() if value is not None}
    if concurrency is not None or rate is not None:
        changes |= {"concurrency": concurrency, "rate": rate, "loads": None}
        changes.setdefault("num_prompts", _prompts_for(base, concurrency, rate))
    changed = dataclasses.replace(base, **changes)
    problem = _load_problem(changed.concurrency, changed.rate, changed.num_prompts)
    if problem:
        raise InputError(problem, "give --num-prompts as four times the concurrency or more")
    return dataclasses.replace(changed, name=_name(base, changed))


def check_fits(workload: Workload, max_length: int) -> None:
    """Raise InputError where a request of the workload can be longer than the model's limit of `max_length` tokens."""
    longest = longest_request_tokens(workload)
    if longest > max_length:
        raise InputError(
            f"workload {workload.name!r} sends requests of up to {longest} tokens, the model takes {max_length}",
            "choose shorter --input-tokens or --output-tokens, or another workload",
        )


def longest_request_tokens(workload: Workload) -> int:
    """Upper bound of prompt and output of one request, rounded up as vLLM's random data set rounds."""
    stretch = 1 + workload.length_spread
    own = math.ceil(workload.input_tokens * stretch) + math.ceil(workload.output_tokens * stretch)
    return workload.shared_prefix_tokens + own


def _read(name_or_path: str) -> Workload:
    is_file = name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path
    path = Path(name_or_path).expanduser() if is_file else preset_path(name_or_path)
    spec = read_model(path, "workload", WorkloadFile)
    loads = tuple(spec.loads) if spec.loads else None
    return Workload(**{**spec.model_dump(), "name": spec.name or path.stem, "loads": loads})


def _load_problem(concurrency: int | None, rate: float | None, num_prompts: int) -> str | None:
    """What is wrong with how the load is given, or None."""
    if concurrency is None and rate is None:
        return "give concurrency (requests in flight) or rate (requests a second)"
    if concurrency is not None and rate is not None:
        return f"give concurrency or rate, not both (found concurrency {concurrency} and rate {rate:g})"
    if concurrency is not None and num_prompts < concurrency:
        return f"num_prompts {num_prompts} is below concurrency {concurrency}: the load would never be reached"
    return None


def _prompts_for(base: Workload, concurrency: int | None, rate: float | None) -> int:
    """Number of prompts for another load: as many waves as the base has, or the arrivals of some seconds."""
    if concurrency is not None:
        waves = base.num_prompts / base.concurrency if base.concurrency else 4
        return max(_FEWEST_PROMPTS, math.ceil(waves * concurrency))
    return max(_FEWEST_PROMPTS, math.ceil(_RATE_WINDOW_S * (rate or 0)))


def _check_ranges(counts: dict[str, int | None], rate: float | None) -> None:
    """Raise InputError naming the first option whose value cannot be."""
    if counts["concurrency"] is not None and rate is not None:
        raise InputError("--concurrency and --rate exclude each other", "give the one that drives your load")
    if rate is not None and not 0 < rate < math.inf:
        raise InputError(f"--rate {rate:g} is out of range", "allowed: more than 0 requests a second")
    for name, value in counts.items():
        least = _SHORTEST_PROMPT if name == "input_tokens" else 1
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} {value} is too small", f"allowed: {least} or more")


def _name(base: Workload, changed: Workload) -> str:
    """`chat`, or with what differs from it: `chat-c8-in512-out64`."""
    marks = {"concurrency": "c", "rate": "r", "input_tokens": "in", "output_tokens": "out"}
    differing = [
        f"{mark}{getattr(changed, name):g}"
        for name, mark in marks.items()
        if getattr(changed, name) is not None and getattr(changed, name) != getattr(base, name)
    ]
    return "-".join([base.name, *differing])
