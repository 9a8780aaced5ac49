"""From a search space and the facts to the candidates worth a launch: legal, resolved by vLLM itself, no two alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.render import is_environment
from advisor.errors import InputError
from advisor.records import Candidate, EngineFacts, GpuFacts, Rejection, Workload
from advisor.space.capture_lists import NAMES, named_list
from advisor.space.rules import automatic_backend, objection
from advisor.space.spec import DEFAULT, LEGAL, SpaceSpec

# resolve(candidates) -> for each one a dictionary: {"ok": True, "resolved": {...}} or {"ok": False, "error": "..."}
Resolver = Callable[[Sequence[Candidate]], Sequence[Mapping[str, Any]]]


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
class SearchSpace:
    """What may be proposed: the tree of choices, and the distinct legal candidates in it (without the baseline)."""

    settings: tuple[SettingChoices, ...]
    candidates: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    resolved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # candidate key -> what vLLM makes of it


@dataclass(frozen=True)
class Limits:
    """Of the baseline as vLLM resolves it: what bounds a capture list."""

    max_num_seqs: int
    max_num_batched_tokens: int


def concrete_settings(
    spec: SpaceSpec, engine: EngineFacts, gpu: GpuFacts, workload: Workload, limits: Limits, fixed: set[str]
) -> tuple[SettingChoices, ...]:
    """The space's settings with their words replaced by values; settings that the person fixed are left out.

    Raises InputError when nothing is left to choose.
    """
    choices = []
    for name, setting in spec.settings.items():
        if name in fixed:
            continue
        words = [DEFAULT, *_other_backends(engine)] if setting.values == LEGAL else setting.values
        values = tuple(_concrete(name, word, gpu, workload, limits) for word in words)
        when = {
            other: tuple(None if word == DEFAULT else word for word in wanted)
            for other, wanted in setting.when.items()
            if other not in fixed
        }
        choices.append(SettingChoices(name, _without_repeats(values), when))
    if not any(value is not None for choice in choices for value in choice.values):
        taken = [name for name in spec.settings if name in fixed]
        given = f" (fixed by --serve-args or --env: {', '.join(taken)})" if taken else ""
        raise InputError(f"search space {spec.name!r} leaves nothing to choose{given}", "add values, or free a setting")
    return tuple(choices)


def _other_backends(engine: EngineFacts) -> list[str]:
    automatic = automatic_backend(engine)
    return [backend.name for backend in engine.backends if backend.valid and backend.name != automatic]


def _concrete(name: str, word: Any, gpu: GpuFacts, workload: Workload, limits: Limits) -> Any:
    if word == DEFAULT:
        return None
    if name == "cudagraph_capture_sizes" and word in NAMES:
        load = workload.concurrency or limits.max_num_seqs
        return tuple(named_list(word, load, limits.max_num_seqs, limits.max_num_batched_tokens))
    if name == "cudagraph_capture_sizes":
        return _checked_sizes(word, limits)
    if word == "all-cores" and name == "VLLM_CPU_OMP_THREADS_BIND":
        return f"0-{gpu.count - 1}"
    return tuple(word) if isinstance(word, list) else word


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


def _without_repeats(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def combinations(settings: Sequence[SettingChoices], chosen: Mapping[str, Any] | None = None) -> Iterator[Candidate]:
    """Every candidate of the tree of choices, the baseline among them, in the order of the file."""
    chosen = dict(chosen or {})
    if not settings:
        yield Candidate({name: value for name, value in chosen.items() if value is not None})
        return
    first, rest = settings[0], settings[1:]
    for value in first.values if first.exists(chosen) else (None,):
        yield from combinations(rest, {**chosen, first.name: value})


def build_space(settings: tuple[SettingChoices, ...], engine: EngineFacts, resolve: Resolver) -> SearchSpace:
    """Drop what a rule forbids, what vLLM refuses, and what resolves to the baseline or to a candidate with fewer overrides."""
    rejections: list[Rejection] = []
    legal: list[Candidate] = []
    for candidate in combinations(settings):
        reason = None if candidate.is_baseline else objection(candidate.settings, engine)
        if reason:
            rejections.append(Rejection(candidate, reason))
        else:
            legal.append(candidate)
    legal.sort(key=lambda candidate: candidate.overrides)  # stable: the simplest of equals is kept
    if not legal or not legal[0].is_baseline:
        legal.insert(0, Candidate())
    seen: dict[str, Candidate] = {}
    distinct: list[Candidate] = []
    resolved: dict[str, Mapping[str, Any]] = {}
    for candidate, answer in zip(legal, resolve(legal), strict=True):
        if not answer["ok"]:
            rejections.append(Rejection(candidate, f"vLLM refuses it: {answer['error']}"))
            continue
        identity = resolved_identity(candidate, answer["resolved"])
        if identity in seen:
            rejections.append(Rejection(candidate, f"resolves to the same as {seen[identity].label}"))
            continue
        seen[identity] = candidate
        resolved[candidate.key] = answer["resolved"]
        if not candidate.is_baseline:
            distinct.append(candidate)
    return SearchSpace(settings, tuple(distinct), tuple(rejections), resolved)


def resolved_identity(candidate: Candidate, resolved: Mapping[str, Any]) -> str:
    """Candidates with one identity run the same: vLLM's resolved configuration, and the environment, which it does not hold."""
    environment = {name: value for name, value in candidate.settings.items() if is_environment(name)}
    return json.dumps([resolved.get("fingerprint") or resolved, environment], sort_keys=True, default=str)


def first_candidates(space: SearchSpace) -> tuple[Candidate, ...]:
    """The designed first trials: each value of each setting at least once, in candidates with few overrides.

    Within the 8 to 20 launches that people can afford, a sampler's random start would leave whole settings untried. Settings
    take turns, so that a search that stops early has looked at all of them.
    """
    turns: list[list[Candidate]] = []
    covered: set[tuple[str, str]] = set()
    for choice in space.settings:
        row = []
        for value in choice.values:
            pair = (choice.name, json.dumps(value))
            if value is None or pair in covered:
                continue
            holders = [item for item in space.candidates if item.settings.get(choice.name) == value]
            if holders:
                simplest = min(holders, key=lambda item: item.overrides)
                covered |= {(name, json.dumps(item)) for name, item in simplest.settings.items()}
                row.append(simplest)
        turns.append(row)
    ordered = [row[turn] for turn in range(max(map(len, turns), default=0)) for row in turns if turn < len(row)]
    return tuple({candidate.key: candidate for candidate in ordered}.values())
