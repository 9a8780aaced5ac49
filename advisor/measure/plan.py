"""What all samples of a study have in common: decided from the baseline, recorded in every trial, then fixed. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.measure.client_load import processes_for
from advisor.measure.length import lasts, prompts_for, why_prompts
from advisor.measure.slice_rules import slice_prompts
from advisor.records import Invalid, Sample, SamplingPlan, Trial, Workload

REVISIONS = 3  # of the plan, at most, on one baseline


def first_plan(
    workload: Workload, wave: Sample | None, most: int, fixed_processes: int | None = None, slice_waves: int = 0
) -> SamplingPlan:
    """From the last wave of the baseline's warm-up: its pace and how busy the client was. `most` client processes fit.

    `slice_waves`: waves of the load that a slice has at least; 0: no slices are taken in this study.
    """
    rate = wave.requests_s if wave is not None else 0.0
    prompts = prompts_for(workload, rate)
    processes = fixed_processes or (processes_for(wave, most) if wave is not None else 1)
    short = slice_prompts(workload, prompts, rate, slice_waves) if slice_waves else 0
    return SamplingPlan(prompts, processes, _why(workload, prompts, processes, fixed_processes), short)


def revised(
    plan: SamplingPlan, sample: Sample, workload: Workload, most: int, fixed_processes: int | None = None
) -> SamplingPlan:
    """The plan as the baseline's own sample suggests it. The same plan where the sample is good or nothing would help."""
    if not {Invalid.TOO_SHORT, Invalid.CLIENT_BOUND} & set(sample.classes):
        return plan
    prompts = lasts(sample, plan, workload).num_prompts
    processes = fixed_processes or max(plan.client_processes, processes_for(sample, most))
    why = _why(workload, prompts, processes, fixed_processes)
    return dataclasses.replace(plan, num_prompts=prompts, client_processes=processes, why=why)


def planned(workload: Workload, plan: SamplingPlan) -> Workload:
    return dataclasses.replace(workload, num_prompts=plan.num_prompts)


def plan_of(trials: Sequence[Trial]) -> SamplingPlan | None:
    """The plan of an earlier session's baseline; None where there is none. Older journals tell it by its samples."""
    baseline = next((trial for trial in trials if trial.phase == "baseline" and trial.ok and trial.samples), None)
    if baseline is None:
        return None
    if baseline.plan is not None:
        return baseline.plan
    sample = baseline.samples[0]
    return SamplingPlan(sample.requests + sample.failed, sample.client.processes if sample.client else 1)


def known_prompts(trials: Sequence[Trial]) -> dict[tuple[int, int], str]:
    """Digest of the prompts by seed and number of requests, as earlier launches sent them."""
    taken = [sample for trial in trials for sample in (*trial.slices, *trial.samples)]
    samples = [sample for sample in taken if sample.prompts and not sample.problems]
    return {(sample.seed, sample.requests + sample.failed): sample.prompts for sample in samples}


def _why(workload: Workload, prompts: int, processes: int, fixed: int | None) -> str:
    words = [why_prompts(workload, prompts)]
    if processes > 1:
        asked = "as asked for" if fixed else "one would set the pace"
        words.append(f"{processes} client processes, {asked}")
    return "; ".join(filter(None, words))
