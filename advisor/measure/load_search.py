"""--find-load: the highest load at which a launch meets the SLO. All loads share the launch: bracket, then bisection.

`next_load` is the pure search, `find_load` the part that measures.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from advisor.measure.length import prompts_for
from advisor.measure.saturation import keeps_up
from advisor.measure.slo import breaches
from advisor.records import Invalid, LoadPoint, Objective, Sample, SloLimit, Workload

RESOLUTION = 0.05  # the search ends when the load that fails is at most this much above the one that is met
MOST_LOADS = 10  # measured on a launch at most
FIRST_RATE = 1.0  # requests a second to begin with, where the workload has a number in flight
MOST_CONCURRENCY = 4096  # vLLM's own limits on running sequences are below
_FIRST_STEP, _STEP = 2.0, 4.0  # factors: a second step in the same direction goes further
_NO_MORE = 1.02  # requests a second grow by this in one of two rises of the load, or the server is full
_SAMPLE_S, _FEWEST = 10.0, 32  # arrivals of so long, and at least so many requests, make a sample at a rate
_SEEDS_APART = 50  # samples of one load have neighbouring seeds; MOST_LOADS of these stay below a round's 1000


@dataclass(frozen=True)
class Found:
    """`samples` belong to the highest load that met the SLO, or to the lowest tried where none did."""

    loads: tuple[LoadPoint, ...]
    samples: tuple[Sample, ...]
    note: str


def find_load(
    measure: Callable[[Workload, int], Sample], workload: Workload, objective: Objective, seeds: Sequence[int]
) -> Found:
    """Measure loads until the highest that meets the SLO is known to RESOLUTION. `measure(workload, seed)` takes a sample.

    Each load is measured with all seeds, moved on for each load so that no prompt comes twice. A load above one that met the
    SLO which cannot be measured (the client sets the pace, say) is a limit like one that breaks it, and the note says so:
    a candidate that bears more is then not found, but none wins by it. So is a rate at which requests could not be sent, wherever
    it comes. Elsewhere an invalid sample ends the search.
    """
    points: list[LoadPoint] = []
    taken: list[list[Sample]] = []
    while (now := next_load(points, workload, objective.find_load or "")) is not None:
        samples = _samples(measure, now, [seed + _SEEDS_APART * len(points) for seed in seeds], seeds)
        if samples[-1].problems and not any(point.met for point in points) and not _sent_late(samples[-1], now):
            return Found(tuple(points), tuple(samples[-1:]), f"at {_words(now)} the measurement was not valid")
        points.append(judged(load_of(now), samples, objective.slo))
        taken.append(samples)
    return Found(tuple(points), tuple(taken[_chosen(points)]), told(points, objective.find_load or ""))


def _sent_late(sample: Sample, workload: Workload) -> bool:
    """A server that is flooded can leave its client too little of a shared processor to send: a lower rate may do."""
    return workload.rate is not None and sample.classes[:1] == (Invalid.LOAD_NOT_REACHED,)


def _samples(
    measure: Callable[[Workload, int], Sample], workload: Workload, seeds: Sequence[int], asked: Sequence[int]
) -> list[Sample]:
    """One sample a seed, up to the first that is not valid. Launches are compared by the seed that was asked for."""
    samples: list[Sample] = []
    for seed, pair in zip(seeds, asked, strict=True):
        sample, workload = _measured(measure, workload, seed)
        samples.append(dataclasses.replace(sample, load=load_of(workload), asked_seed=pair))
        if sample.problems:
            break
    return samples


def _measured(measure: Callable[[Workload, int], Sample], workload: Workload, seed: int) -> tuple[Sample, Workload]:
    """A sample of this load, again with more prompts where it was too short, and the workload that it took."""
    sample = measure(workload, seed)
    if Invalid.TOO_SHORT not in sample.classes or sample.duration_s <= 0:
        return sample, workload
    longer = dataclasses.replace(workload, num_prompts=prompts_for(workload, sample.requests / sample.duration_s))
    return measure(longer, seed + _SEEDS_APART // 2), longer


def next_load(history: Sequence[LoadPoint], start: Workload, kind: str) -> Workload | None:
    """The workload with the load to measure next, or None when the search is over. `kind`: concurrency or rate.

    Doubles from the workload's own load (then four times at once, and twice where the last rise brought nothing) as long as the
    SLO is met, or halves until it is; then halves the gap between the highest load that is met and the lowest that is not, on
    a logarithmic scale.
    """
    if len(history) >= MOST_LOADS:
        return None
    first = _start(start, kind)
    if not history:
        return with_load(start, kind, first)
    met, missed = _bracket(history)
    if met is not None and missed is not None:
        load = math.sqrt(met * missed)
        done = missed <= met * (1 + RESOLUTION)
    elif met is not None:
        load = met * (_FIRST_STEP if len(history) == 1 or _is_flat(history[-2:]) else _STEP)
        done = is_full(history) or (kind == "concurrency" and met >= MOST_CONCURRENCY)
    else:
        load = (missed or first) / (_FIRST_STEP if len(history) == 1 else _STEP)
        done = kind == "concurrency" and missed is not None and missed <= 1
    if kind == "concurrency":
        load = _whole(load, met, missed)
        done = done or any(point.load == load for point in history)
    return None if done else with_load(start, kind, load)


def is_full(history: Sequence[LoadPoint]) -> bool:
    """Whether the last two rises of the load brought no more finished requests: more in flight only wait.

    One rise does not show it: of two small loads, noise decides which finishes more, and twice the wait can be within the SLO.
    """
    return len(history) >= 3 and _is_flat(history[-3:])


def _is_flat(rises: Sequence[LoadPoint]) -> bool:
    """Whether none of these loads, each above the one before and all within the SLO, finished more than the first."""
    first, *higher = sorted(rises, key=lambda point: point.load)
    return all(point.met for point in rises) and all(point.requests_s < first.requests_s * _NO_MORE for point in higher)


def kept_up(found: Sample, workload: Workload, kind: str) -> Workload:
    """The workload at the load of a sample that a search stands for, with its number of requests: to be kept up for a while."""
    count = found.requests + found.failed
    return dataclasses.replace(with_load(workload, kind, found.load or _start(workload, kind)), num_prompts=count)


def seeds_after(seed: int) -> Iterator[int]:
    """Seeds that no load of a search for this one had."""
    return itertools.count(seed + _SEEDS_APART * MOST_LOADS)


def judged(load: float, samples: Sequence[Sample], slo: Sequence[SloLimit]) -> LoadPoint:
    """Whether the SLO was met at this load, and at a rate also whether the server kept up with the arrivals."""
    problems = [f"not measured: {sample.problems[0]}" for sample in samples if sample.problems] or breaches(
        samples, slo
    )
    if keeps_up(samples, load) is False:
        problems.append("requests arrive faster than they are finished")
    rate = sum(sample.requests_s for sample in samples) / len(samples)
    return LoadPoint(load, not problems, round(rate, 4), "; ".join(problems))


def with_load(base: Workload, kind: str, load: float) -> Workload:
    """The workload at another load, with as many requests as its own sample has waves, or seconds of arrivals."""
    if kind == "concurrency":
        waves = base.num_prompts / base.concurrency if base.concurrency else 4
        count = max(math.ceil(waves * load), min(_FEWEST, base.num_prompts))
        return dataclasses.replace(base, concurrency=int(load), rate=None, num_prompts=count)
    seconds = base.num_prompts / base.rate if base.rate else _SAMPLE_S
    count = max(_FEWEST, math.ceil(seconds * load))
    return dataclasses.replace(base, concurrency=None, rate=float(f"{load:.4g}"), num_prompts=count)


def load_of(workload: Workload) -> float:
    return float(workload.concurrency if workload.rate is None else workload.rate)


def told(points: Sequence[LoadPoint], kind: str) -> str:
    """What the search found, in one sentence."""
    unit = "requests in flight" if kind == "concurrency" else "requests/s"
    met, missed = _bracket(points)
    if met is None:
        return f"no load met the SLO, down to {missed:g} {unit}: {points[-1].reason}"
    if missed is None:
        why = "more in flight finish no more requests" if is_full(points) else f"{len(points)} loads were tried"
        return f"the SLO is met at every load tried, up to {met:g} {unit}: {why}"
    reason = next(point.reason for point in points if point.load == missed)
    open_end = "" if missed <= met * (1 + RESOLUTION) + 1 else f", after {len(points)} loads"
    return f"the SLO is met at {met:g} {unit}, not at {missed:g} ({reason}){open_end}"


def left_open(points: Sequence[LoadPoint], kind: str) -> float:
    """Logarithm of how far the highest load that meets the SLO may lie above the one found; 0 where none meets it.

    Between 40 requests in flight that meet it and 42 that do not, 41 were not tried. Where none was missed, because the server was
    full or the loads were used up, it can be any number up to MOST_CONCURRENCY in flight; of rates, one _STEP as high was next.
    """
    met, missed = _bracket(points)
    if met is None:
        return 0.0
    if missed is None:
        return math.log(max(1.0, MOST_CONCURRENCY / met if kind == "concurrency" else _STEP))
    return max(0.0, math.log((missed - 1 if kind == "concurrency" else missed) / met))


def is_open(points: Sequence[LoadPoint]) -> bool:
    """Whether no load was found that misses the SLO, though loads above the highest one could have been tried."""
    met, missed = _bracket(points)
    return met is not None and missed is None and met < MOST_CONCURRENCY


def _start(workload: Workload, kind: str) -> float:
    if kind == "concurrency":
        return float(workload.concurrency or 1)
    return workload.rate or FIRST_RATE


def _bracket(history: Sequence[LoadPoint]) -> tuple[float | None, float | None]:
    """Highest load that met the SLO below every one that did not, and the lowest that did not.

    Noise can let a higher load pass after a lower one failed: that pass is not counted.
    """
    missed = min((point.load for point in history if not point.met), default=None)
    met = [point.load for point in history if point.met and (missed is None or point.load < missed)]
    return max(met, default=None), missed


def _chosen(points: Sequence[LoadPoint]) -> int:
    met, missed = _bracket(points)
    return next(index for index, point in enumerate(points) if point.load == (missed if met is None else met))


def _whole(load: float, met: float | None, missed: float | None) -> float:
    """A whole number of requests in flight, between the two where there is one."""
    whole = float(min(max(1, round(load)), MOST_CONCURRENCY))
    if met is not None and missed is not None and missed - met > 1:
        whole = min(max(whole, met + 1), missed - 1)
    return whole


def _words(workload: Workload) -> str:
    return f"{workload.concurrency} in flight" if workload.rate is None else f"{workload.rate:g} requests/s"
