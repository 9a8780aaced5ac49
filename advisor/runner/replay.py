"""Answers jobs from the trials of a recorded study, at their recorded cost: search strategies are compared in seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.records import Outcome, Trial
from advisor.runner.base import Job


class ReplayRunner:
    """A candidate measured several times is answered by its recorded trials in turn; an unknown one is unsupported."""

    def __init__(self, recorded: Sequence[Trial]):
        self._recorded: dict[str, list[Trial]] = {}
        for trial in recorded:
            if trial.outcome is not Outcome.INTERRUPTED:
                self._recorded.setdefault(trial.candidate.key, []).append(trial)
        self._answered: dict[str, int] = {}

    def run(self, job: Job) -> Trial:
        known = self._recorded.get(job.candidate.key)
        if not known:
            return Trial(
                job.number, job.phase, job.candidate, Outcome.UNSUPPORTED, "not in the recorded study", round=job.round
            )
        turn = self._answered.get(job.candidate.key, 0)
        self._answered[job.candidate.key] = turn + 1
        trial = known[turn % len(known)]
        return dataclasses.replace(trial, number=job.number, phase=job.phase, candidate=job.candidate, round=job.round)
