"""A figure of the profile against the one that was measured now: two groups of launches of two days. Pure.

The confirmation pairs launches of one sitting; these are of two, so that no launch has a partner. What is compared are two means,
each with its own deviation between launches (Welch's interval), in logarithms.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from advisor.records import Interval
from advisor.serving_profile.values import Figure
from advisor.student_t import two_sided_quantile
from advisor.verdict.statistics import CONFIDENCE, LEAST_DEVIATION

_MOST_LAUNCHES = 50  # that anybody would make to settle a figure


class Held(str, Enum):
    """What a claim of the profile came to."""

    HOLDS = "holds"
    FAILS = "does-not-hold"
    UNCLEAR = "inconclusive"


EXIT_CODES = {Held.HOLDS: 0, Held.FAILS: 1, Held.UNCLEAR: 5}  # 2 to 4 are those of errors


@dataclass(frozen=True)
class Was:
    """A figure as the profile has it; `deviation` between its launches, over the mean: None after a single one."""

    mean: float
    launches: int
    deviation: float | None = None


def was(figure: Figure, launches: int) -> Was:
    """The deviation is read back from the interval of the mean: Student's t, whose lower end may be cut off at zero."""
    if figure.high is None or launches < 2 or not figure.mean:
        return Was(figure.mean, launches)
    half = figure.high - figure.mean
    return Was(figure.mean, launches, half * math.sqrt(launches) / _quantile(launches - 1) / figure.mean)


def ratio(before: Was, now: Sequence[float]) -> Interval | None:
    """The present mean over the profile's, with its 95% interval; None for fewer than two launches."""
    if len(now) < 2 or before.mean <= 0 or min(now) <= 0:
        return None
    gain = math.log(statistics.fmean(now) / before.mean)
    half = half_width(before, deviation(now), len(now))
    return Interval(math.exp(gain), math.exp(gain - half), math.exp(gain + half))


def deviation(now: Sequence[float]) -> float:
    """Between launches, over their mean; no launch is known better than LEAST_DEVIATION."""
    return max(statistics.stdev(now) / statistics.fmean(now), LEAST_DEVIATION)


def half_width(before: Was, spread: float, launches: int) -> float:
    """Of the interval of the ratio, in logarithms. A profile of one launch is taken to vary as the present launches do."""
    old = spread if before.deviation is None else max(before.deviation, LEAST_DEVIATION)
    theirs, ours = old**2 / max(1, before.launches), spread**2 / launches
    parts = [(ours, launches - 1), *([(theirs, before.launches - 1)] if before.deviation is not None else [])]
    degrees = sum(part for part, _ in parts) ** 2 / sum(part**2 / free for part, free in parts)
    return _quantile(max(1, math.floor(degrees))) * math.sqrt(theirs + ours)


def judged(found: Interval | None, tolerance: float) -> Held:
    """Within the tolerance with the whole interval, beyond it with the whole interval, or open."""
    if found is None:
        return Held.UNCLEAR
    low, high = 1 / (1 + tolerance), 1 + tolerance
    if low <= found.low and found.high <= high:
        return Held.HOLDS
    return Held.FAILS if found.high < low or found.low > high else Held.UNCLEAR


def launches_needed(before: Was, now: Sequence[float], tolerance: float) -> int | None:
    """Launches now after which the measured ratio would be settled either way; None where a reasonable number would not do."""
    if len(now) < 2 or before.mean <= 0:
        return None
    distance = abs(math.log(1 + tolerance) - abs(math.log(statistics.fmean(now) / before.mean)))
    spread = deviation(now)
    counts = range(len(now) + 1, _MOST_LAUNCHES + 1)
    return next((count for count in counts if half_width(before, spread, count) < distance), None)


def _quantile(degrees: int) -> float:
    return two_sided_quantile(CONFIDENCE, degrees)
