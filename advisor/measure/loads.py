"""A workload with several loads: each launch measures them all, so that one dear start serves every load. Pure.

The main load is the highest: the server is warmed up with it, and settings that depend on the load are chosen for it. The others
follow in rising order. Prompts of two loads must differ, or the prefix cache of the launch knows them: each load has seeds of its
own, SEEDS_APART from those of the load before. Samples of one seed at all loads are one figure: their geometric mean.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from advisor.records import Sample, SamplingPlan, Workload

MOST = 5  # loads: more would reach the seeds of the proof
SEEDS_APART = 20_000
SLICE_SEEDS_FROM = 500_000  # no other seed is near: a prompt that came before is cached
FEWEST = 16  # requests of a sample at any load


@dataclasses.dataclass(frozen=True)
class Station:
    """One load that a launch measures. `load` None: the workload has no other."""

    index: int
    load: float | None
    workload: Workload  # with the requests of a sample there

    def seed(self, seed: int) -> int:
        return seed + SEEDS_APART * self.index


def main_load(workload: Workload) -> float:
    return float(workload.rate if workload.rate is not None else workload.concurrency or 0)


def stations(workload: Workload, plan: SamplingPlan) -> tuple[Station, ...]:
    """The loads in the order of measuring, the main one first, with the plan's requests or, before it has some, a first guess."""
    main = dataclasses.replace(workload, num_prompts=plan.num_prompts)
    if not workload.loads:
        return (Station(0, None, main),)
    others = [_at(main, load) for load in sorted(workload.loads) if load != main_load(workload)]
    prompts = plan.load_prompts or tuple(item.num_prompts for item in others)
    planned = [dataclasses.replace(item, num_prompts=count) for item, count in zip(others, prompts, strict=True)]
    return tuple(Station(index, main_load(item), item) for index, item in enumerate((main, *planned)))


def _at(main: Workload, load: float) -> Workload:
    """As many waves as at the main load, or seconds of arrivals; FEWEST requests at least."""
    prompts = max(FEWEST, math.ceil(main.num_prompts * load / main_load(main)))
    if main.rate is None:
        return dataclasses.replace(main, concurrency=int(load), num_prompts=prompts)
    return dataclasses.replace(main, rate=load, num_prompts=prompts)


def base_seed(seed: int) -> int:
    """What the seeds of one sample at all loads have in common, for samples and slices of the search."""
    first = SLICE_SEEDS_FROM if seed >= SLICE_SEEDS_FROM else 0
    return first + (seed - first) % SEEDS_APART


def by_load(samples: Iterable[Sample]) -> dict[float | None, list[Sample]]:
    found: dict[float | None, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.load, []).append(sample)
    return found
