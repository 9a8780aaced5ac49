"""Which settings explain failures: the smallest conjunctions that no trial that worked contradicts. Pure.

Two failures of different candidates with one cause make a region. Where several conjunctions of the same size explain them, the
region is all of their conditions together, the part in which every explanation foretells a failure: nothing is ruled out that
another explanation would let live, and the next trial that works there tells them apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ENOUGH = 2  # failures of different candidates with one cause
MOST_CONDITIONS = 3
_SEEDS = 20  # failures that groups are looked for around: the latest
Cause = tuple[str, str]  # the outcome, and its reason without numbers

Features = Mapping[
    str, Any
]  # name -> number or text; a setting that is left to vLLM has none, unless it is known what it takes


@dataclass(frozen=True)
class Seen:
    """What came of one candidate: `cause` is None where it worked."""

    key: str
    features: Features
    cause: Cause | None = None
    reason: str = ""
    where: str = ""  # in which study


@dataclass(frozen=True, order=True)
class Condition:
    name: str
    relation: str  # "is", ">=" or "<="
    value: Any

    def holds(self, features: Features) -> bool:
        if self.name not in features:
            return False
        found = features[self.name]
        if self.relation == "is":
            return found == self.value
        if not (_is_number(found) and _is_number(self.value)):
            return False
        return found >= self.value if self.relation == ">=" else found <= self.value

    @property
    def text(self) -> str:
        if self.value is True and self.relation == "is":
            return self.name
        return f"{self.name}={self.value}" if self.relation == "is" else f"{self.name} {self.relation} {self.value}"


@dataclass(frozen=True)
class Region:
    """A conjunction in which every candidate is taken to fail for one cause."""

    conditions: tuple[Condition, ...]
    cause: Cause
    reason: str = field(compare=False)  # of the last failure in it
    failures: int = field(compare=False, default=ENOUGH)

    def holds(self, features: Features) -> bool:
        return all(condition.holds(features) for condition in self.conditions)

    @property
    def text(self) -> str:
        """`FLASHINFER and max_num_seqs >= 528`, with `is` where both bounds are the same number."""
        bounds: dict[str, dict[str, Any]] = {}
        for condition in self.conditions:
            bounds.setdefault(condition.name, {})[condition.relation] = condition.value
        words = []
        for condition in self.conditions:
            both = bounds[condition.name]
            if len(both) == 1:
                words.append(condition.text)
            elif condition.relation == ">=":
                low, high = both[">="], both["<="]
                words.append(f"{condition.name}={low}" if low == high else f"{condition.name} {low} to {high}")
        return " and ".join(words)


def regions(seen: Sequence[Seen]) -> tuple[Region, ...]:
    """The regions that all trials so far support, those with the most failures first."""
    worked = [item.features for item in seen if item.cause is None]
    found: list[Region] = []
    for cause in dict.fromkeys(item.cause for item in seen if item.cause is not None):
        left = list({item.key: item for item in seen if item.cause == cause}.values())
        while len(left) >= ENOUGH and (covered := _largest_group(left, worked)):
            found.append(_region(covered, worked, cause))
            left = [item for item in left if item not in covered]
    return tuple(sorted(found, key=lambda region: -region.failures))


def _largest_group(failures: Sequence[Seen], worked: Sequence[Features]) -> list[Seen]:
    """The failures that one conjunction holds: as many as possible, with as few conditions as possible. Empty: fewer than two."""
    best: list[Seen] = []
    for size in range(1, MOST_CONDITIONS + 1):
        for first in failures[-_SEEDS:]:
            for conditions in itertools.combinations(_conditions_of(first, failures, worked), size):
                covered = [item for item in failures if all(one.holds(item.features) for one in conditions)]
                if len(covered) > max(len(best), ENOUGH - 1) and not _contradicted(conditions, worked):
                    best = covered
        if len(best) == len(failures):
            break
    return best


def _conditions_of(item: Seen, failures: Sequence[Seen], worked: Sequence[Features]) -> list[Condition]:
    """What may be said of one failure: its words, and for its numbers a few bounds that failures set.

    These are its own number, the farthest of all failures, and the farthest that lies on this side of every trial that worked.
    """
    found = []
    for name, value in sorted(item.features.items()):
        if not _is_number(value):
            found.append(Condition(name, "is", value))
            continue
        failed, fine = _numbers(name, [other.features for other in failures]), _numbers(name, worked)
        below = max((number for number in fine if number < value), default=-math.inf)
        above = min((number for number in fine if number > value), default=math.inf)
        lows = {value, min(failed), min(number for number in failed if below < number <= value)}
        highs = {value, max(failed), max(number for number in failed if value <= number < above)}
        found += [Condition(name, ">=", bound) for bound in sorted(lows)]
        found += [Condition(name, "<=", bound) for bound in sorted(highs)]
    return found


def _numbers(name: str, among: Sequence[Features]) -> list[Any]:
    return [features[name] for features in among if _is_number(features.get(name))]


def _region(covered: Sequence[Seen], worked: Sequence[Features], cause: Cause) -> Region:
    """All smallest conjunctions of what the failures have in common, together."""
    common = _common(covered)
    smallest: list[tuple[Condition, ...]] = []
    for size in range(1, len(common) + 1):
        chosen = itertools.combinations(common, size)
        smallest = [conditions for conditions in chosen if not _contradicted(conditions, worked)]
        if smallest:
            break
    conditions = dict.fromkeys(one for conditions in smallest for one in conditions)
    return Region(tuple(sorted(conditions, key=_order)), cause, covered[-1].reason, len(covered))


def _order(condition: Condition) -> tuple[bool, str, str]:
    return condition.relation != "is", condition.name, condition.relation


def _common(covered: Sequence[Seen]) -> list[Condition]:
    first = covered[0].features
    found = []
    for name in sorted(set(first).intersection(*(item.features for item in covered))):
        values = [item.features[name] for item in covered]
        if all(map(_is_number, values)):
            found += [Condition(name, ">=", min(values)), Condition(name, "<=", max(values))]
        elif all(value == values[0] for value in values):
            found.append(Condition(name, "is", values[0]))
    return found


def _contradicted(conditions: Sequence[Condition], worked: Sequence[Features]) -> bool:
    return any(all(one.holds(features) for one in conditions) for features in worked)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
