"""What there is to choose: a space's settings with their words replaced by values for this GPU, workload and vLLM."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.render import same_setting, version_tuple
from advisor.engine.rules.inert import inert_settings
from advisor.engine.versions import RELEASES
from advisor.engine.writing.spelling import spell
from advisor.errors import InputError
from advisor.records import Candidate, EngineFacts, GpuFacts, Rejection, Workload
from advisor.space.capture_lists import NAMES, named_list
from advisor.space.rules import automatic_backend
from advisor.space.spec import DEFAULT, LEGAL, SpaceSpec

SEQUENCE_WORDS = ("load", "half-load", "double")  # of max_num_seqs
OPERATING_POINT = "operating-point"


@dataclass(frozen=True)
class SettingChoices:
    """A setting after the facts have spoken: its concrete values (None is vLLM's own choice) and its conditions."""

    name: str
    values: tuple[Any, ...]
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def exists(self, chosen: Mapping[str, Any]) -> bool:
        """Whether the setting is there, given the values chosen for the settings above it."""
        return all(chosen.get(other) in wanted for other, wanted in self.when.items())


@dataclass(frozen=True)
class Limits:
    """Of the baseline as vLLM resolves it: what words and capture lists are made from."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int | None = None
    capture_sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, resolved: Mapping[str, Any]) -> Limits:
        sizes = resolved.get("cudagraph_capture_sizes") or ()
        seqs, tokens = resolved["max_num_seqs"], resolved["max_num_batched_tokens"]
        return cls(seqs, tokens, resolved.get("block_size"), tuple(sizes))


def concrete_settings(
    spec: SpaceSpec, engine: EngineFacts, gpu: GpuFacts, workload: Workload, limits: Limits, fixed: set[str]
) -> tuple[SettingChoices, ...]:
    """The space's settings with their words replaced by values; settings that the person fixed are left out.

    A value that is what vLLM takes by itself here stands for the default. Raises InputError when nothing is left to choose.
    """
    choices = []
    for name, setting in spec.settings.items():
        if name in fixed:
            continue
        words = [DEFAULT, *_other_backends(engine)] if setting.values == LEGAL else setting.values
        values = tuple(_concrete(name, word, gpu, workload, limits) for word in words)
        when = {
            other: tuple(_concrete(other, word, gpu, workload, limits) for word in wanted)
            for other, wanted in setting.when.items()
            if other not in fixed
        }
        choices.append(SettingChoices(name, _without_repeats(values), when))
    if not any(value is not None for choice in choices for value in choice.values):
        taken = [name for name in spec.settings if name in fixed]
        given = f" (fixed by --serve-args or --env: {', '.join(taken)})" if taken else ""
        raise InputError(f"search space {spec.name!r} leaves nothing to choose{given}", "add values, or free a setting")
    return tuple(choices)


def legal_settings(
    settings: Sequence[SettingChoices], engine: EngineFacts
) -> tuple[tuple[SettingChoices, ...], tuple[Rejection, ...]]:
    """The settings without the values that the installed vLLM has no words for or that are inert, each refused by name.

    A setting that is left without a value keeps vLLM's own choice.
    """
    kept, refused = [], []
    for choice in settings:
        told = [(value, None if value is None else _refusal(choice.name, value, engine)) for value in choice.values]
        refused += [Rejection(Candidate({choice.name: value}), reason) for value, reason in told if reason]
        values = tuple(value for value, reason in told if not reason) or (None,)
        kept.append(SettingChoices(choice.name, values, choice.when))
    return tuple(kept), tuple(refused)


def _without_repeats(values: Sequence[Any]) -> tuple[Any, ...]:
    """Values may be lists or dictionaries; true is not 1."""
    return tuple({json.dumps(value, sort_keys=True, default=str): value for value in values}.values())


def _refusal(name: str, value: Any, engine: EngineFacts) -> str | None:
    """Why this vLLM cannot be told the value, or why it would change nothing here whatever stands beside it.

    Options are looked up where the version is a release that the tables hold.
    """
    version = version_tuple(engine.vllm_version)
    written = list(value) if isinstance(value, tuple) else value
    if inert := inert_settings({name: written}, engine.platform, version):
        return "; ".join(f"{one} is inert: {reason}" for one, reason in inert.items())
    try:
        options = spell({name: written}, version, check=version in RELEASES).options.values
    except InputError as error:
        return error.problem
    unknown = [option for option in options if option.startswith("--") and engine.flags and option not in engine.flags]
    return f"the installed vLLM {engine.vllm_version} has no {unknown[0]}" if unknown else None


def _other_backends(engine: EngineFacts) -> list[str]:
    automatic = automatic_backend(engine)
    return [backend.name for backend in engine.backends if backend.valid and backend.name != automatic]


# ---------------------------------------------------------------- words


def _concrete(name: str, word: Any, gpu: GpuFacts, workload: Workload, limits: Limits) -> Any:
    if word == DEFAULT:
        return None
    name = same_setting(name)
    if name == "cudagraph_capture_sizes" and word in NAMES:
        load = workload.concurrency or limits.max_num_seqs
        return tuple(named_list(word, load, limits.max_num_seqs, limits.max_num_batched_tokens))
    if name == "cudagraph_capture_sizes":
        return _checked_sizes(word, limits)
    if name == "max_num_seqs" and word in SEQUENCE_WORDS:
        return _sequences(word, workload.concurrency, limits.max_num_seqs)
    if name == "compile_sizes" and word == OPERATING_POINT:
        return _padded_load(workload.concurrency, limits)
    if word == "all-cores" and name == "VLLM_CPU_OMP_THREADS_BIND":
        return f"0-{gpu.count - 1}"
    if word == _taken_anyway(name, limits):
        return None
    return tuple(word) if isinstance(word, list) else word


def _taken_anyway(name: str, limits: Limits) -> Any:
    """What vLLM takes by itself; it keeps a block size that was asked for apart from its own, so resolved values would differ."""
    own = {
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "block_size": limits.block_size,
    }
    return own.get(name)


def _sequences(word: str, load: int | None, default: int) -> int | None:
    """None where the workload has a rate and no number of requests in flight, or where the number is vLLM's own."""
    wanted = {"load": load, "half-load": load and max(1, load // 2), "double": 2 * default}[word]
    return None if wanted == default else wanted


def _padded_load(load: int | None, limits: Limits) -> tuple[int, ...] | None:
    """The size that a batch of the whole load runs with. A size that a graph would pad is refused by vLLM when it starts."""
    if load is None:
        return None
    batch, sizes = min(load, limits.max_num_seqs), limits.capture_sizes
    index = bisect_left(sizes, batch)
    return (sizes[index] if index < len(sizes) else batch,)


def _checked_sizes(sizes: Any, limits: Limits) -> tuple[int, ...]:
    good = isinstance(sizes, list) and sizes and all(isinstance(size, int) and size > 0 for size in sizes)
    if not good:
        raise InputError(
            f"cudagraph_capture_sizes: {sizes!r} is neither a list of whole numbers above zero nor one of {', '.join(NAMES)}"
        )
    if max(sizes) > limits.max_num_batched_tokens:
        raise InputError(
            f"cudagraph_capture_sizes: {max(sizes)} is above max_num_batched_tokens, which is {limits.max_num_batched_tokens} here"
        )
    return tuple(sorted(set(sizes)))
