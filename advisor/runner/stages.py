"""In which order a launch is measured: a slice first, then a whole sample a seed, and an end as soon as it cannot win."""

from __future__ import annotations

from advisor.records import SamplingPlan
from advisor.runner.launch import Launch
from advisor.runner.sampling import Sampling


def measure(sampling: Sampling, launch: Launch) -> None:
    """A launch under a plan that is made already. After each stage but the last it may be dropped."""
    if (plan := launch.plan) is None:
        return
    _take_slices(sampling, launch, plan)
    for seed in launch.job.seeds:
        if launch.is_lost():
            return
        launch.samples.append(sampling.measure(seed, plan))


def measure_and_plan(sampling: Sampling, launch: Launch) -> None:
    """The first launch of a study: it makes the plan, and nothing can be ahead of it.

    Slices come before the whole samples, as on every later launch. Where the first sample shows that more client processes
    are needed, they are taken again, with other prompts.
    """
    job, (first, *others) = launch.job, launch.job.seeds
    plan = sampling.first_plan(job.slice_waves if job.slice_seeds else 0)
    _take_slices(sampling, launch, plan)
    sample, launch.plan = sampling.measure_and_revise(first, plan)
    if launch.plan.client_processes != plan.client_processes:
        _take_slices(sampling, launch, launch.plan, attempt=1)
    launch.samples.append(sample)
    for seed in others:
        launch.samples.append(sampling.measure(seed, launch.plan))


def _take_slices(sampling: Sampling, launch: Launch, plan: SamplingPlan, attempt: int = 0) -> None:
    launch.slices = []
    for seed in launch.job.slice_seeds if plan.slice_prompts else ():
        launch.slices.append(sampling.slice(seed, plan, attempt))
