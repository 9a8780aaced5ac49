"""How long a slice is, and when it may be used: the short sample by which a launch can be dropped before its whole ones. Pure.

A slice is only ever compared with the same slice of another launch: the same prompts, the same ramp, the same drain. So it need not
be steady, as a whole sample must, and one wave of the load is enough to tell throughputs apart: all prompts are prefilled, all
tokens are decoded. How a wave divides that time among requests is another thing (all prompts of it are prefilled at once), so
latencies and goodput take as many waves as a whole sample has at least.
"""

from __future__ import annotations

import dataclasses
import math

from advisor.measure.length import LEAST_REQUESTS, LEAST_WAVES, MARGIN, ROOM, wanted_s
from advisor.measure.validity import Problem, first_problem, with_problems
from advisor.records import Invalid, Sample, Workload

WAVES = 1
LATENCY_WAVES = LEAST_WAVES
SECONDS_SHARE = 1 / 3  # of a whole sample's: 1 s for a few requests in flight, up to 3.3 s
MOST_SHARE = 0.5  # of a whole sample's requests: a slice that is longer saves nothing


def slice_s(workload: Workload) -> float:
    """Seconds that the baseline's slice should last at least."""
    return wanted_s(workload) * SECONDS_SHARE


def slice_prompts(workload: Workload, sample_prompts: int, requests_s: float, waves: int = WAVES) -> int:
    """Requests of a slice, at the pace of the baseline's last wave of warm-up; 0 where a slice would save nothing.

    Whole waves with a number in flight; with a rate, twice the least requests or as many as arrive in the seconds wanted.
    """
    wave = workload.concurrency or 1
    least = max(LEAST_REQUESTS, waves * wave) if workload.concurrency else 2 * LEAST_REQUESTS
    enough = requests_s * slice_s(workload)
    wanted = enough * MARGIN if least < enough < math.inf else least
    prompts = math.ceil(wanted / wave) * wave
    return prompts if prompts <= MOST_SHARE * sample_prompts else 0


def sliced(workload: Workload, prompts: int) -> Workload:
    return dataclasses.replace(workload, num_prompts=prompts)


def as_slice(sample: Sample, workload: Workload) -> Sample:
    """A sample that was judged like a whole one, judged by a slice's length instead."""
    if Invalid.TOO_SHORT in sample.classes:
        others = [Problem(*pair) for pair in zip(sample.classes, sample.problems, strict=True)]
        kept = [problem for problem in others if problem.kind is not Invalid.TOO_SHORT]
        sample = with_problems(dataclasses.replace(sample, problems=(), classes=()), kept)
    least = slice_s(workload) / ROOM
    if not sample.problems and 0 < sample.duration_s < least:
        text = f"the slice lasted {sample.duration_s:.2f} s; at least {least:.2f} s are needed"
        return with_problems(sample, [Problem(Invalid.TOO_SHORT, text)])
    return sample


def objection(sample: Sample) -> str | None:
    """Why a slice decides nothing, or None. A disturbed one does not either: a launch is not dropped on a doubt."""
    if sample.problems:
        return first_problem(sample)
    return sample.taints[0] if sample.taints else None
