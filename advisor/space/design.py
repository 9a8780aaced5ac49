"""Which combinations of a space are looked at, and how many there are. Pure; candidates are made, not judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.records import Candidate
from advisor.space.choices import SettingChoices


def combinations(settings: Sequence[SettingChoices], chosen: Mapping[str, Any] | None = None) -> Iterator[Candidate]:
    """Every candidate of the tree of choices, the baseline among them, in the order of the file."""
    chosen = dict(chosen or {})
    if not settings:
        yield candidate_of(chosen)
        return
    first, rest = settings[0], settings[1:]
    for value in first.values if first.exists(chosen) else (None,):
        yield from combinations(rest, {**chosen, first.name: value})


def count(settings: Sequence[SettingChoices]) -> int:
    """How many `combinations` there are, without making them: branches that no later condition tells apart are one."""
    states: dict[tuple, tuple[dict[str, Any], int]] = {(): ({}, 1)}
    for index, choice in enumerate(settings):
        asked = {name for later in settings[index + 1 :] for name in later.when}
        grown: dict[tuple, tuple[dict[str, Any], int]] = {}
        for chosen, ways in states.values():
            for value in choice.values if choice.exists(chosen) else (None,):
                kept = {name: item for name, item in {**chosen, choice.name: value}.items() if name in asked}
                key = tuple(sorted((name, repr(item)) for name, item in kept.items()))
                grown[key] = (kept, ways + (grown[key][1] if key in grown else 0))
        states = grown
    return sum(ways for _, ways in states.values())


def singles_and_pairs(settings: Sequence[SettingChoices]) -> list[Candidate]:
    """Each value alone and each two values of different settings together, with what their conditions need, simplest first.

    Every setting's own effect and every interaction of two is in these; they grow with the square of the number of values,
    all combinations with its power. Fixed settings, which have one value, are in all of them.
    """
    fixed = {choice.name: choice.values[0] for choice in settings if len(choice.values) == 1 and not choice.when}
    alone = [
        _with_conditions({**fixed, choice.name: value}, settings)
        for choice in settings
        for value in choice.values
        if value is not None
    ]
    found = [fixed, *[chosen for chosen in alone if chosen is not None]]
    for one, other in itertools.combinations(found[1:], 2):
        if all(one[name] == other[name] for name in one.keys() & other.keys()):
            both = _with_conditions({**one, **other}, settings)
            if both is not None:
                found.append(both)
    made = {candidate.key: candidate for candidate in map(candidate_of, found)}
    return sorted(made.values(), key=lambda candidate: candidate.overrides)


def one_less(candidate: Candidate) -> list[Candidate]:
    """The candidate without each of its overrides."""
    settings = candidate.settings
    return [Candidate({name: settings[name] for name in settings if name != left}) for left in settings]


def candidate_of(chosen: Mapping[str, Any]) -> Candidate:
    return Candidate({name: value for name, value in chosen.items() if value is not None})


def _with_conditions(chosen: Mapping[str, Any], settings: Sequence[SettingChoices]) -> dict[str, Any] | None:
    """The choice in the file's order, with values for what its conditions need; None where they cannot be met."""
    needed = dict(chosen)
    for choice in reversed(settings):
        if needed.get(choice.name) is None:
            continue
        for other, wanted in choice.when.items():
            if needed.get(other) not in wanted:
                if needed.get(other) is not None:
                    return None
                needed[other] = wanted[0]
    whole = {choice.name: needed[choice.name] for choice in settings if needed.get(choice.name) is not None}
    known = all(whole[choice.name] in choice.values for choice in settings if choice.name in whole)
    return whole if known and all(choice.exists(whole) for choice in settings if choice.name in whole) else None
