"""Intervals. The unit of replication is the launch: repeats on one server hide how launches differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from advisor.records import Interval
from advisor.verdict.student_t import two_sided_quantile

CONFIDENCE = 0.95


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Mean of launches and Student's t interval with n - 1 degrees of freedom; None for fewer than two launches.

    It is symmetric, so that for a positive figure with few and scattered launches its lower end can lie below zero.
    """
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = two_sided_quantile(CONFIDENCE, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def paired_ratio(baseline: Sequence[float], challenger: Sequence[float], maximise: bool) -> Interval | None:
    """Geometric mean of challenger over baseline, launches paired by round, oriented so that more than 1 is better.

    The interval is Student's t on the logarithms of the pairs' ratios, n - 1 degrees of freedom: both launches of a round had
    the same seeds, so what the prompts add cancels, and what differs between launches stays in. None for fewer than two pairs.
    """
    pairs = list(zip(baseline, challenger, strict=True))
    logs = [math.log(b / a) if maximise else math.log(a / b) for a, b in pairs]
    interval = mean_interval(logs)
    return interval and Interval(math.exp(interval.value), math.exp(interval.low), math.exp(interval.high))


def relative_deviation(values: Sequence[float]) -> float | None:
    """Standard deviation between launches over their mean; None for fewer than two."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) / statistics.fmean(values)
