"""The figures by which trials are compared, and which of them counts as the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from advisor.measure.loads import by_load
from advisor.measure.slo import breaches, violation
from advisor.records import Objective, Outcome, Sample, Trial

TIE = 0.02  # launches of one configuration differ by 0.1 to 2% on a GPU: closer scores are the same


def sample_value(sample: Sample, objective: Objective) -> float:
    """The objective's figure of one sample, in its own unit. `ttft_ms.p99` looks into the latency's percentiles.

    Goodput of no request at all counts as that of half a request, so that ratios to it exist. Start-up seconds belong to
    a launch, not to a sample (see `score`). Raises ValueError where the sample has no such figure.
    """
    name, _, percentile = objective.metric.partition(".")
    if name == "goodput":
        found = sample.goodput_requests_s
        found = None if found is None else max(found, 0.5 / sample.duration_s if sample.duration_s > 0 else 0.0)
    elif name in ("max_concurrency", "max_rate"):
        found = sample.load
    else:
        value = getattr(sample, name)
        found = value[percentile] if percentile else value
    if found is None:
        raise ValueError(f"the sample of seed {sample.seed} has no {name}")
    return float(found)


def score(trial: Trial, objective: Objective) -> float | None:
    """Mean over the trial's samples of the (first) objective's figure; None unless the trial is OK.

    Of several loads it is the geometric mean of each one's mean: a tenth more counts the same at any of them.
    All trials have the same seeds, so means compare; one that was dropped lacks some. Whether the SLO was met is another
    question: `slo_breaches`.
    """
    if not trial.ok or not trial.samples or trial.dropped:
        return None
    if objective.metric == "start_s":
        return trial.start_s
    loads = by_load(trial.samples).values()
    means = [sum(sample_value(sample, objective) for sample in samples) / len(samples) for samples in loads]
    return means[0] if len(means) == 1 else geometric_mean(means)


def scores(trial: Trial, objective: Objective) -> tuple[float, ...] | None:
    """One score an objective, the first one first; None unless the trial has all of them."""
    found = tuple(score(trial, one) for one in objective.each)
    return None if None in found else found


def told_scores(trial: Trial, objective: Objective) -> tuple[float, ...] | None:
    """What a sampler hears of a trial: its scores, or those that a dropped one would have had, as far as is known."""
    if not trial.ok or trial.dropped is None:
        return scores(trial, objective)
    found = tuple(trial.dropped.estimate.get(metric) for metric in objective.metrics)
    return None if None in found else found


def slo_breaches(trial: Trial, objective: Objective) -> list[str]:
    """The limits of --slo that a measured trial misses, in words, where a breach rules a candidate out."""
    if not objective.constrained or not trial.ok or trial.dropped:
        return []
    if trial.loads and not any(point.met for point in trial.loads):
        return [f"no load met the SLO, down to {trial.loads[-1].load:g}: {trial.loads[-1].reason}"]
    loads = by_load(trial.samples)
    if len(loads) == 1:
        return breaches(trial.samples, objective.slo)
    return [f"at {load:g}: {text}" for load, samples in loads.items() for text in breaches(samples, objective.slo)]


def slo_violation(trial: Trial, objective: Objective) -> float:
    """How far the trial misses them, as the largest missing share of requests; 0 where it meets them all."""
    if not slo_breaches(trial, objective):
        return 0.0
    found = max((violation(samples, objective.slo) for samples in by_load(trial.samples).values()), default=0.0)
    return found or 0.01  # no load was sustained, though requests were in time


def evidence(trial: Trial) -> Trial:
    """The trial as what it measured: one whose settings were not active counts for the candidate that was, as an OK trial."""
    if trial.outcome is Outcome.NOT_AS_REQUESTED and trial.credited_to is not None and trial.samples:
        return dataclasses.replace(trial, candidate=trial.credited_to, outcome=Outcome.OK)
    return trial


def leads(trials: Sequence[Trial], objective: Objective) -> bool:
    """Whether a candidate of the search is ahead of the default by more than launches differ."""
    default = measured_default(trials, objective)
    found = [
        value
        for trial in trials
        if trial.phase == "search" and (value := score(evidence(trial), objective)) is not None
    ]
    reference = score(default, objective) if default else None
    return any(better_by(value, reference, objective) > 1 + TIE for value in found) if reference else False


def better_by(value: float, reference: float, objective: Objective) -> float:
    """Ratio of the two, oriented so that more than 1 is better than the reference."""
    return value / reference if objective.maximise else reference / value


def eligible(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The search's measured candidates that may win: with every figure, within the SLO, not the default itself."""
    seen = [evidence(trial) for trial in trials if trial.phase == "search"]
    return [
        trial
        for trial in seen
        if not trial.candidate.is_baseline
        and scores(trial, objective) is not None
        and not slo_breaches(trial, objective)
    ]


def gains(trial: Trial, reference: Trial, objective: Objective) -> tuple[float, ...]:
    """Ratio to the reference trial for each objective, oriented so that more than 1 is better. Both must have all scores."""
    pairs = zip(scores(trial, objective) or (), scores(reference, objective) or (), objective.each, strict=True)
    return tuple(better_by(value, other, one) for value, other, one in pairs)


def measured_default(trials: Sequence[Trial], objective: Objective) -> Trial | None:
    """The baseline's measurement that the search compares with."""
    return next((t for t in trials if t.phase == "baseline" and scores(t, objective) is not None), None)


def ranked(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """Candidates of the search that may win, best first.

    The first objective decides; of those within 2% of its best, the mean gain over all objectives (geometric, 2% again), then
    the fewest overrides. With several objectives, candidates that lose more than 2% against the default in one of them come
    after all others, by their mean gain: they are trades, which only a person can weigh.
    """
    left = eligible(trials, objective)
    reference = measured_default(trials, objective) or (left[0] if left else None)
    gained = {trial.number: gains(trial, reference, objective) for trial in left if reference is not None}
    trades = {number for number, ratios in gained.items() if objective.secondary and min(ratios) < 1 - TIE}
    order: list[Trial] = []
    while left:
        group = [trial for trial in left if trial.number not in trades]
        best = _best(group, gained) if group else _best_mean(left, gained)
        order.append(best)
        left.remove(best)
    return order


def _best(group: Sequence[Trial], gained: Mapping[int, tuple[float, ...]]) -> Trial:
    top = max(gained[trial.number][0] for trial in group)
    return _best_mean([trial for trial in group if gained[trial.number][0] >= top * (1 - TIE)], gained)


def _best_mean(group: Sequence[Trial], gained: Mapping[int, tuple[float, ...]]) -> Trial:
    means = {trial.number: geometric_mean(gained[trial.number]) for trial in group}
    top = max(means.values())
    tied = [trial for trial in group if means[trial.number] >= top * (1 - TIE)]
    return min(tied, key=lambda trial: (trial.candidate.overrides, -means[trial.number]))


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.prod(ratios) ** (1 / len(ratios))
