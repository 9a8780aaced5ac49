"""What fresh launches of baseline and finalists came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from advisor.records.candidate import Candidate


class Decision(str, Enum):
    IMPROVED = "improved"
    KEEP_DEFAULTS = "keep-defaults"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Interval:
    """A value and its two-sided 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """A further objective on the fresh launches."""

    metric: str
    standing: str  # better, worse, same (within the noise), or unclear
    ratio: Interval | None = None  # as Verdict.ratio


@dataclass(frozen=True)
class FrontPoint:
    """A point of the Pareto front: no other one is at least as good in every objective and better in one."""

    candidate: Candidate
    values: Mapping[str, float]  # metric -> mean of the search's launch, in the metric's own unit
    recommended: bool = False
    why: str = ""  # it is recommended


@dataclass(frozen=True)
class Finalist:
    """What the fresh launches said of one candidate."""

    candidate: Candidate
    decision: Decision
    reason: str
    launches: int = 0  # pairs with the baseline
    ratio: Interval | None = None  # as Verdict.ratio
    failed: str = ""  # why it cannot win: a fresh launch of it failed, or it lost its proof


@dataclass(frozen=True)
class Tradeoff:
    """A figure that got worse on the challenger's fresh launches, beyond what launches differ by."""

    metric: str
    ratio: Interval  # challenger over baseline as it is: 1.27 is 27% more, whichever way is better
    proven: bool = True  # the whole interval is on that side; otherwise it was measured, and too few launches to be sure
    load: float | None = None  # at which it got worse, of a workload with several; None: over all of them


@dataclass(frozen=True)
class Verdict:
    """Outcome of the confirmation: fresh launches of baseline and finalist, paired by round and seeds."""

    decision: Decision
    reason: str
    objective: str
    winner: Candidate  # the empty candidate unless the decision is IMPROVED
    challenger: Candidate | None = None  # the candidate that was confirmed against the baseline
    ratio: Interval | None = None  # challenger over baseline, oriented so that more than 1 is better
    baseline: Mapping[str, Interval] = field(default_factory=dict)  # metric -> mean over launches
    tuned: Mapping[str, Interval] = field(default_factory=dict)
    launches: int = 0  # fresh launches an arm
    noise: float | None = None  # relative standard deviation between the baseline's fresh launches
    no_noise: str = ""  # why it was not measured
    smallest_gain: float | None = None  # that these launches could show, as a fraction: half the interval of the ratio
    ratios: Mapping[str, Interval] = field(default_factory=dict)  # metric -> challenger over baseline, not oriented
    tradeoffs: tuple[Tradeoff, ...] = ()  # what the challenger costs, worst first
    finalists: tuple[Finalist, ...] = ()  # all that were launched afresh, best first
    others: tuple[Compared, ...] = ()  # the objectives after the first, in their order
    front: tuple[FrontPoint, ...] = ()  # several objectives: candidates of the search that none other beats in all
