"""How far launches of one configuration lie apart: what a race has to allow for before it drops one. Pure.

All figures are logarithms, so that deviations are relative. A launch's figure at one seed is its configuration, the seed (equal for
all launches), the launch itself (`between`) and what is left (`within`). Comparing two launches seed by seed takes the seed out.

Which of the last two is how large is known from few launches only in part: the search launches nothing twice. What is left over
after launch and seed is known from the study's own trials. The launch's own part is taken as BETWEEN times that, the largest factor
in the recorded noise of docs/evidence (output_tok_s: H200 with an 8B 1.8, busy processor 1.5, H200 with a 0.6B 1.2), or as what
the default's fresh launches of an earlier session show, if that is more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.student_t import two_sided_quantile

ENOUGH = 4  # degrees of freedom of the study's own: below, they are helped by the prior
# One degree of freedom, before a study has its own: launches of one configuration differ by 0.1 to 2% on an H200.
PRIOR = 0.02
BETWEEN = 1.8
LEAST = 0.003  # nothing is known better: two quiet launches agreed within 0.1% at one seed, others differed by 2%
_ENOUGH_REPEATS = 3

ByStage = Mapping[int, float]  # seed of a slice or sample -> logarithm of a launch's figure


@dataclass(frozen=True)
class Noise:
    """Relative standard deviations; `degrees` of freedom with which they are known."""

    within: float  # of a sample or slice beside its launch
    between: float  # of a launch
    degrees: int

    def of_launch(self, samples: int) -> float:
        """Deviation of the mean over so many samples of one launch."""
        return math.sqrt(self.between**2 + self.within**2 / samples)

    def of_ratio(self, samples: int) -> float:
        """The same for the ratio of two launches."""
        return math.sqrt(2) * self.of_launch(samples)

    def times(self, error: float) -> float:
        """Deviations that a true value lies beyond with probability `error`, on one side."""
        return two_sided_quantile(1 - 2 * error, self.degrees)


# Starts: launches of one configuration took 47 to 59 s warm on an H200 (10%), 35 to 78 s on a busy processor (33%).
START = Noise(within=0.0, between=0.25, degrees=4)


def noise_of(launches: Sequence[ByStage], alike: Sequence[Sequence[float]] = (), repeats: Sequence[float] = ()) -> Noise:
    """From launches that were measured in full, of whatever configurations.

    `alike`: figures of one launch that differ by their seed only (its slices; its samples): they help while there is little
    else, and seeds make them differ more than noise does. `repeats`: one figure for each fresh launch of the default.
    """
    squares, degrees = left_over(launches)
    if degrees < ENOUGH:
        groups = [group for group in alike if len(group) > 1]
        squares += PRIOR**2 + sum(statistics.variance(group) * (len(group) - 1) for group in groups)
        degrees += 1 + sum(len(group) - 1 for group in groups)
    within = max(math.sqrt(squares / degrees), LEAST)
    between = BETWEEN * within
    if len(repeats) >= _ENOUGH_REPEATS:
        between = max(between, statistics.stdev(repeats))
    return Noise(within, between, degrees)


def left_over(launches: Sequence[ByStage]) -> tuple[float, int]:
    """(sum of squares, degrees of freedom) of what launches and seeds do not explain, by least squares; launches may lack seeds."""
    cells = [(index, seed, value) for index, launch in enumerate(launches) for seed, value in launch.items()]
    seeds = sorted({seed for _, seed, _ in cells})
    if len(launches) < 2 or len(seeds) < 2:
        return 0.0, 0
    design = np.zeros((len(cells), len(launches) + len(seeds)))
    for row, (index, seed, _) in enumerate(cells):
        design[row, index] = design[row, len(launches) + seeds.index(seed)] = 1.0
    values = np.array([value for _, _, value in cells])
    fit, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    degrees = len(cells) - int(rank)
    return (float(((values - design @ fit) ** 2).sum()), degrees) if degrees > 0 else (0.0, 0)


def luck(rivals: int) -> float:
    """By how many deviations the best of so many equal launches is expected to look better than it is (Blom's formula)."""
    return statistics.NormalDist().inv_cdf((rivals - 0.375) / (rivals + 0.25)) if rivals > 1 else 0.0
