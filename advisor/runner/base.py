"""The seam between deciding and doing: `run(job) -> Trial`. Search and confirmation know nothing else of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from advisor.launch.readiness import LaunchLimits
from advisor.records import Active, Candidate, Dropped, Sample, SamplingPlan, Telemetry, Trial


class Race(Protocol):
    """What a launch is measured against (advisor/search/racing.py)."""

    def judge(self, start_s: float | None, slices: Sequence[Sample], samples: Sequence[Sample]) -> Dropped | None:
        """Why the launch cannot win, from what was measured of it so far; None: it goes on.

        Asked after the start, after the slice, and after each sample but the last.
        """


@dataclass(frozen=True)
class Job:
    """One launch to make: which candidate, in which phase, measured with which seeds (one sample each, in order)."""

    number: int
    phase: (
        str  # "baseline", "search", "confirm", of the winner's proof (verdict/proof.py) "soak", "restart", "quality"; "cold-start"
    )
    candidate: Candidate
    seeds: tuple[int, ...]  # none: started, and not measured
    round: int | None = None
    resolved: Mapping[str, Any] = field(
        default_factory=dict
    )  # what vLLM makes of the candidate, to compare with what runs
    caches: str = (
        "study"  # "study": compiled code of earlier launches; "empty": none; "proof": that of the "empty" launch
    )
    soak_s: float = 0.0  # keep the load up so long, a sample after the other
    evaluate: bool = False  # run the person's own evaluation too
    slice_seeds: tuple[int, ...] = ()  # of short samples before the whole ones, where the study's plan has such
    slice_waves: int = 0  # that a slice has at least, for the launch that makes the plan
    race: Race | None = None  # None: measured in full, whatever it gives
    limits: LaunchLimits | None = None  # None: those that every launch has


@dataclass(frozen=True)
class Earlier:
    """What earlier launches of the study decided or saw; empty for a new one, which then learns it from its baseline."""

    plan: SamplingPlan | None = None  # of the samples
    reference: Telemetry | None = None  # the machine, while the baseline was measured
    default: Active = Active()  # what the baseline ran
    prompts: Mapping[tuple[int, int], str] = field(default_factory=dict)  # (seed, number) -> digest of what was sent


class Runner(Protocol):
    """Runs a job to its end and says how it ended. A failure of the launch is an outcome, never an exception.

    KeyboardInterrupt passes through, after the server is gone.
    """

    def run(self, job: Job) -> Trial: ...
