"""In which order a launch is measured: slices first, then a whole sample a seed, and an end as soon as it cannot win.

A workload with several loads has a slice and a sample at each of them for every seed: only together are they a figure.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence

from advisor.measure.load_search import kept_up, seeds_after
from advisor.measure.loads import Station, stations
from advisor.measure.plan import planned
from advisor.measure.slice_rules import slice_prompts
from advisor.records import Objective, Sample, SamplingPlan
from advisor.runner.launch import Launch
from advisor.runner.sampling import Sampling


def measure(sampling: Sampling, launch: Launch) -> None:
    """A launch under a plan that is made already. After each stage but the last it may be dropped.

    A load that is kept up for a while is the main one alone: its samples are compared with each other.
    """
    if (plan := launch.plan) is None:
        return
    places = stations(sampling.workload, plan)[: 1 if launch.job.soak_s else None]
    _take_slices(sampling, launch, plan, places)
    for seed in launch.job.seeds:
        if launch.is_lost():
            return
        for place in places:
            launch.samples.append(_at(place, sampling.measure(place.seed(seed), plan, workload=place.workload)))


def measure_and_plan(sampling: Sampling, launch: Launch) -> None:
    """The first launch of a study: it makes the plan, and nothing can be ahead of it.

    Slices come before the whole samples, as on every later launch. Where the first sample shows that more client processes
    are needed, they are taken again, with other prompts.
    """
    job, (first, *others) = launch.job, launch.job.seeds
    plan = sampling.first_plan(job.slice_waves if job.slice_seeds else 0)
    main, *further = stations(sampling.workload, plan)
    _take_slices(sampling, launch, plan, (main, *further))
    before = plan.client_processes
    sample, plan = sampling.measure_and_revise(first, plan)
    if plan.client_processes != before:
        _take_slices(sampling, launch, plan, (main, *further), attempt=1)
    launch.samples.append(_at(main, sample))
    prompts = []
    for place in further:
        sample, count = sampling.measure_long_enough(place.seed(first), plan, place.workload)
        launch.samples.append(_at(place, sample))
        prompts.append(count)
    launch.plan = dataclasses.replace(plan, load_prompts=tuple(prompts))
    for seed in others:
        for place in stations(sampling.workload, launch.plan):
            launch.samples.append(_at(place, sampling.measure(place.seed(seed), launch.plan, workload=place.workload)))


def soak(sampling: Sampling, launch: Launch, end: float, objective: Objective) -> None:
    """Sample after sample, each with new prompts, until `end` (of time.monotonic) or one of them is not valid.

    Where the launch searched for its load, at the one that it found.
    """
    if (plan := launch.plan) is None or not launch.samples:
        return
    last, workload, load = launch.job.seeds[-1], None, None
    seeds = itertools.count(last + 1)
    if objective.find_load:
        seeds, load = seeds_after(last), launch.samples[-1].load
        workload = kept_up(launch.samples[-1], planned(sampling.workload, plan), objective.find_load)
    while time.monotonic() < end and not any(sample.problems for sample in launch.samples):
        taken = sampling.measure(next(seeds), plan, workload=workload)
        launch.samples.append(taken if load is None else dataclasses.replace(taken, load=load))


def _take_slices(
    sampling: Sampling, launch: Launch, plan: SamplingPlan, places: Sequence[Station], attempt: int = 0
) -> None:
    """At each load for each seed; at the main one as the plan says, at the others as few requests as a slice may have."""
    launch.slices = []
    if not plan.slice_prompts or not launch.job.slice_seeds:
        return
    waves = launch.job.slice_waves
    counts = [plan.slice_prompts, *(slice_prompts(p.workload, p.workload.num_prompts, 0.0, waves) for p in places[1:])]
    if not all(counts):
        return  # where one load has none the others decide nothing
    for seed in launch.job.slice_seeds:
        for place, count in zip(places, counts, strict=True):
            taken = sampling.slice(place.seed(seed), plan, place.workload, count, attempt)
            launch.slices.append(_at(place, taken))


def _at(place: Station, sample: Sample) -> Sample:
    return sample if place.load is None else dataclasses.replace(sample, load=place.load)
