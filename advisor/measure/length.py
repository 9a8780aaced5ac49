"""How long a sample has to last, in requests and seconds, and how many prompts that takes. Pure.

A closed load ramps up and drains: of a sample of one wave nothing is steady. Three waves are the least, as many as all
presets have. Seconds matter beside that, because a small model ends three waves before the machine's own jitter has
averaged out.
"""

from __future__ import annotations

import math

from advisor.records import Sample, SamplingPlan, Workload

LEAST_WAVES = 3
LEAST_REQUESTS = 8
WANTED_S = 3.0  # of the baseline, for a few requests in flight; more where there are more
SECONDS_A_REQUEST_IN_FLIGHT = 1 / 64  # 4 s for 64 in flight, 7 s for 256
MOST_WANTED_S = 10.0
ROOM = 4  # a candidate gets the baseline's prompts, and may be so many times faster before its sample is too short
MARGIN = 1.2  # over the estimate from the warm-up
MOST_GROWTH = 64  # times the workload's own prompts


def wanted_s(workload: Workload) -> float:
    """Seconds that a sample of the baseline should last at least."""
    return min(MOST_WANTED_S, WANTED_S + SECONDS_A_REQUEST_IN_FLIGHT * (workload.concurrency or 0))


def least_s(workload: Workload) -> float:
    """Seconds below which no sample counts."""
    return wanted_s(workload) / ROOM


def least_requests(workload: Workload) -> int:
    return max(LEAST_REQUESTS, LEAST_WAVES * (workload.concurrency or 0))


def prompts_for(workload: Workload, requests_s: float) -> int:
    """Prompts of a sample that lasts long enough at that rate: the workload's own where they do; whole waves beyond."""
    own = max(workload.num_prompts, least_requests(workload))
    if not 0 < requests_s < math.inf or own / requests_s >= wanted_s(workload):
        return own
    wave = workload.concurrency or 1
    enough = math.ceil(requests_s * wanted_s(workload) * MARGIN / wave) * wave
    return min(max(own, enough), MOST_GROWTH * own)


def why_prompts(workload: Workload, prompts: int) -> str:
    """Words for a number of prompts that is not the workload's own."""
    if prompts == workload.num_prompts:
        return ""
    return f"{prompts} prompts instead of {workload.num_prompts}: the baseline needs them to last {wanted_s(workload):.1f} s"


def length_problem(sample: Sample, workload: Workload) -> str | None:
    """Why the sample is too short, or None."""
    least = least_requests(workload)
    if sample.requests + sample.failed < least:
        return f"{sample.requests + sample.failed} requests are too few for this load: at least {least} are needed"
    if 0 < sample.duration_s < least_s(workload):
        return (
            f"the sample lasted {sample.duration_s:.2f} s; at least {least_s(workload):.2f} s are needed: "
            "give a higher --num-prompts"
        )
    return None


def lasts(sample: Sample, plan: SamplingPlan, workload: Workload) -> SamplingPlan:
    """The plan, with more prompts where the baseline's sample was shorter than wanted."""
    if not sample.requests or sample.duration_s >= wanted_s(workload):
        return plan
    prompts = prompts_for(workload, sample.requests / sample.duration_s) if sample.duration_s > 0 else plan.num_prompts
    prompts = max(prompts, plan.num_prompts)
    return SamplingPlan(prompts, plan.client_processes, why_prompts(workload, prompts))
