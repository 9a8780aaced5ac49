"""Positions, ticks and lines of text of the plot: numbers in, numbers out. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

_TICKS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(range(1, 10)))  # in a decade, from coarse to fine
_BAR, _WIDEST = 0.8, 1.0  # of the distance to the nearer neighbour; and the distance of lonely ones
_SPAN = 2.6  # doublings that an axis shows at least: a few bars are not as wide as the panel


def position(number: int) -> float:
    """On an axis of doublings."""
    return math.log2(number)


def limits(numbers: Sequence[int]) -> tuple[float, float]:
    """Of the axis, with room for half a bar at either end."""
    low, high = position(min(numbers)), position(max(numbers))
    half = max((high - low) / 2 + 0.6, _SPAN / 2)
    return (low + high) / 2 - half, (low + high) / 2 + half


def bar_widths(numbers: Sequence[int]) -> list[float]:
    """Of ascending numbers, in doublings: only bars with a near neighbour are narrow."""
    places = [position(number) for number in numbers]
    gaps = [_WIDEST, *(right - left for left, right in itertools.pairwise(places)), _WIDEST]
    return [_BAR * min(left, right, _WIDEST) for left, right in itertools.pairwise(gaps)]


def readable(numbers: Sequence[int], needs: Callable[[int, int], float]) -> list[int]:
    """Those of ascending numbers that get a label: the first, the last, and what lies far enough from those beside it.

    `needs` says how many doublings the labels of two neighbours take.
    """
    kept: list[int] = []
    for number in numbers[:-1]:
        beside = [*kept[-1:], *numbers[-1:]]
        if all(abs(position(number) - position(other)) >= needs(number, other) for other in beside):
            kept.append(number)
    return [*kept, *numbers[-1:]]


def ticks(low: float, high: float) -> list[float]:
    """Three or more round values of a logarithmic axis, as few as that allows."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in _TICKS:
        found = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(found) >= 3:
            break
    return found


def log_limits(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.3, max(values) * 1.3


def gap(floor: Mapping[int, float], best: Mapping[int, float]) -> tuple[list[int], list[float], list[float]]:
    """Numbers that both have, with the values of both: where the distance between the two can be shown."""
    shared = sorted(set(floor) & set(best))
    return shared, [floor[number] for number in shared], [best[number] for number in shared]
