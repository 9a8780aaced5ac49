"""Intervals. The unit of replication is the launch: repeats on one server hide how launches differ."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.records import Interval
from advisor.student_t import two_sided_quantile

CONFIDENCE = 0.95
# No launch is known better than this: on a quiet H200 two launches agreed within 0.1% at one seed, others within 2%.
LEAST_DEVIATION = 0.003

Figures = Mapping[int, float]  # round -> the figure of that round's launch, above zero


@dataclass(frozen=True)
class Comparison:
    """One arm against the baseline, in logarithms of the ratio, oriented so that above zero is better."""

    launches: int  # rounds in which both were measured
    gain: float  # mean over the rounds
    deviation: float  # standard deviation of one round's ratio, from launch to launch
    degrees: int  # of freedom of that deviation
    # How far the baseline's figure may truly lie above what its launches found, and the arm's own above what they did (logarithms):
    # what searches for a load leave open, which no number of launches averages out.
    blur: float = 0.0
    blur_above: float = 0.0

    @property
    def ratio(self) -> float:
        return math.exp(self.gain)

    @property
    def launch_deviation(self) -> float:
        """Relative standard deviation of one launch: a ratio has two in it."""
        return self.deviation / math.sqrt(2)

    def half_width(self, tail: float) -> float:
        """From the gain down to the end of the two-sided interval that leaves out `tail` on each side, in logarithms."""
        return self._luck(tail) + self.blur

    def interval(self, tail: float) -> Interval:
        above = self._luck(tail) + self.blur_above
        return Interval(self.ratio, math.exp(self.gain - self.half_width(tail)), math.exp(self.gain + above))

    def mirrored(self) -> Comparison:
        """The baseline against the arm."""
        return dataclasses.replace(self, gain=-self.gain, blur=self.blur_above, blur_above=self.blur)

    def _luck(self, tail: float) -> float:
        return two_sided_quantile(1 - 2 * tail, self.degrees) * self.deviation / math.sqrt(self.launches)


def compare(
    baseline: Figures, arm: Figures, others: Sequence[Figures] = (), maximise: bool = True
) -> Comparison | None:
    """The arm's launches over the baseline's, paired by round; None for fewer than two pairs.

    Both launches of a round had the same seeds, so what the prompts and a slow drift add cancels, and what differs between
    launches stays in. The deviation is the largest of three: what all arms show together (`others` are further arms of the
    same rounds), this arm alone, which may be the noisier one, and LEAST_DEVIATION.
    """
    shared = sorted(baseline.keys() & arm.keys())
    if len(shared) < 2:
        return None
    logs = [math.log(arm[number] / baseline[number]) * (1 if maximise else -1) for number in shared]
    together, degrees = launch_deviation([baseline, arm, *others])
    deviation = max(math.sqrt(2) * max(together, LEAST_DEVIATION), statistics.stdev(logs))
    return Comparison(len(shared), statistics.fmean(logs), deviation, degrees)


def launch_deviation(arms: Sequence[Figures]) -> tuple[float, int]:
    """(relative standard deviation of a launch, degrees of freedom) after what arms and rounds explain is taken out.

    The residual of the additive two-way layout arm + round, by least squares, so that arms may lack rounds. With two arms
    it is the paired t test's deviation, over the root of two. (0, 0) where nothing is left to estimate it from.
    """
    cells = [(index, number, math.log(value)) for index, arm in enumerate(arms) for number, value in arm.items()]
    rounds = sorted({number for _, number, _ in cells})
    design = np.zeros((len(cells), len(arms) + len(rounds)))
    for row, (index, number, _) in enumerate(cells):
        design[row, index] = design[row, len(arms) + rounds.index(number)] = 1.0
    values = np.array([value for _, _, value in cells])
    fit, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    degrees = len(cells) - int(rank)
    if degrees < 1:
        return 0.0, 0
    return float(np.sqrt(((values - design @ fit) ** 2).sum() / degrees)), degrees


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Mean of launches and Student's t interval with n - 1 degrees of freedom; None for fewer than two launches.

    It is symmetric, so that for a positive figure with few and scattered launches its lower end can lie below zero.
    """
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = two_sided_quantile(CONFIDENCE, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def relative_deviation(values: Sequence[float]) -> float | None:
    """Standard deviation between launches over their mean; None for fewer than two, or a mean of zero."""
    if len(values) < 2 or not statistics.fmean(values):
        return None
    return statistics.stdev(values) / statistics.fmean(values)


def same_launch_deviation(candidates: Sequence[Mapping[int, float]]) -> float:
    """What repeats on one server differ by, over the root of their number: a launch's mean is not known better than that.

    `candidates`: seed -> figure, one mapping a launch, all with the same seeds. 0 where there is only one seed.
    """
    usable = [launch for launch in candidates if len(launch) > 1 and all(value > 0 for value in launch.values())]
    if len(usable) < 2:
        return 0.0
    deviation, _ = launch_deviation(usable)
    return deviation / math.sqrt(statistics.fmean(len(launch) for launch in usable))
