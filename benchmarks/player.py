"""One strategy on one recorded grid with one seed: launches at their recorded cost, and what the best so far is really worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.records import Candidate, Trial
from advisor.runner.base import Job
from advisor.runner.replay import ReplayRunner
from advisor.search.scores import better_by, score
from benchmarks.grids import Case


class Enough(Exception):
    """Every target is reached and the time that is compared at is over: the rest of the run cannot change the result."""


@dataclass(frozen=True)
class Step:
    """After a launch: seconds spent, launches made, and the true value of the best so far as a share of the grid's best."""

    spent_s: float
    launches: int
    share: float


@dataclass
class Player:
    """Plays the study as well as the runner for advisor/study/launches.py: whatever runs a job appends its trial here.

    The best so far is the candidate whose measured score is the highest; its true value may be another. `until`: a share of
    the best that must be reached, and seconds that must be over, before the run may end early.
    """

    case: Case
    seed: int
    until: tuple[float, float] = (math.inf, math.inf)
    trials: list[Trial] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    folder: Path = Path("unused")

    def __post_init__(self) -> None:
        self.space = self.case.space()
        self._runner = ReplayRunner(self.case.trials, self.seed, self.case.noise, self.case.head.workload)
        self._best: tuple[float, str] | None = None

    # ------------------------------------------------------------ for strategies

    def launch(self, candidate: Candidate) -> Trial:
        """One launch with the grid's own seeds, measured in full."""
        phase = "search" if self.trials else "baseline"
        trial = self.run(Job(self.next_number, phase, candidate, tuple(range(self.case.head.samples))))
        self.append(trial)
        return trial

    # ------------------------------------------------------------ as runner and study

    def run(self, job: Job) -> Trial:
        if self.steps and self.steps[-1].share >= self.until[0] and self.spent_s >= self.until[1]:
            raise Enough
        return self._runner.run(job)

    def append(self, trial: Trial) -> None:
        self.trials.append(trial)
        value = score(trial, self.case.objective)
        if value is not None and (self._best is None or better_by(value, self._best[0], self.case.objective) > 1):
            self._best = value, trial.candidate.key
        share = self.case.share(self._best[1]) if self._best else 0.0
        self.steps.append(Step(self.spent_s, len(self.trials), share))

    @property
    def next_number(self) -> int:
        return len(self.trials)

    @property
    def spent_s(self) -> float:
        return sum(trial.total_s for trial in self.trials)


def reached(steps: Sequence[Step], share: float) -> Step | None:
    """The first step at which the best so far was really worth that share of the grid's best."""
    return next((step for step in steps if step.share >= share), None)


def share_at(steps: Sequence[Step], seconds: float) -> float:
    """True value of the best so far after so many seconds of launches; 0 before the first has ended."""
    return max(
        (step for step in steps if step.spent_s <= seconds), key=lambda step: step.spent_s, default=Step(0, 0, 0.0)
    ).share
