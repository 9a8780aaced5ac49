"""In which order the candidates of a space are recorded, so that any beginning of it is spread over the space. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from advisor.records import Candidate
from advisor.space.candidates import SettingChoices

_Values = tuple[str, ...]  # of a candidate, one a setting, in the settings' order


def spread(candidates: Sequence[Candidate], settings: Sequence[SettingChoices]) -> list[Candidate]:
    """The default, then each value once in the simplest candidate that has it, then whatever is farthest from all before.

    The first part is what looks at each setting alone. In the second the candidate is next that brings the most pairs of values
    which no one before has together; of equals the one that differs in most settings from its nearest predecessor, then the
    one with the fewest overrides. The same candidates give the same order, and a longer list begins like a shorter one.
    """
    default = Candidate()
    values = {item.key: _values(item, settings) for item in (default, *candidates)}
    chosen = [default, *_singles(candidates, settings)]
    covered: set[tuple] = set()
    for item in chosen:
        covered |= _pairs(values[item.key])
    left = {item.key: item for item in candidates if item.key not in {one.key for one in chosen}}
    nearest = {key: min(_distance(values[key], values[one.key]) for one in chosen) for key in left}
    while left:
        key = max(left, key=lambda key: (len(_pairs(values[key]) - covered), nearest[key], -left[key].overrides))
        chosen.append(left.pop(key))
        covered |= _pairs(values[key])
        nearest = {other: min(far, _distance(values[other], values[key])) for other, far in nearest.items()}
    return chosen


def part(order: Sequence[Candidate], shard: tuple[int, int]) -> list[Candidate]:
    """Every n-th candidate from the i-th on, for shard (i, n): each shard is spread as well, and all together are the whole."""
    index, of = shard
    return list(order[index::of])


def _singles(candidates: Sequence[Candidate], settings: Sequence[SettingChoices]) -> list[Candidate]:
    """The simplest holder of each value, settings in turn: an order that is cut short has looked at all of them."""
    rows: list[list[Candidate]] = []
    for choice in settings:
        holders = [
            min(having, key=lambda item: item.overrides)
            for value in choice.values
            if value is not None
            and (having := [item for item in candidates if _text(item.settings.get(choice.name)) == _text(value)])
        ]
        rows.append(holders)
    turns = itertools.zip_longest(*rows)
    return list({item.key: item for turn in turns for item in turn if item is not None}.values())


def _values(candidate: Candidate, settings: Sequence[SettingChoices]) -> _Values:
    return tuple(_text(candidate.settings.get(choice.name)) for choice in settings)


def _text(value: object) -> str:
    return json.dumps(value)


def _pairs(values: _Values) -> set[tuple]:
    return set(itertools.combinations(enumerate(values), 2))


def _distance(one: _Values, other: _Values) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))
