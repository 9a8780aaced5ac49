"""The seam between deciding and doing: `run(job) -> Trial`. Search and confirmation know nothing else of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from advisor.records import Candidate, Trial


@dataclass(frozen=True)
class Job:
    """One launch to make: which candidate, in which phase, measured with which seeds (one sample each, in order)."""

    number: int
    phase: str  # "baseline", "search" or "confirm"
    candidate: Candidate
    seeds: tuple[int, ...]
    round: int | None = None


class Runner(Protocol):
    """Runs a job to its end and says how it ended. A failure of the launch is an outcome, never an exception.

    KeyboardInterrupt passes through, after the server is gone.
    """

    def run(self, job: Job) -> Trial: ...
