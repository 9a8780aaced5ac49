"""The figure by which trials are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.records import Objective, Outcome, Sample, Trial

TIE = 0.02  # launches of one configuration differ by 0.1 to 2% on a GPU: closer scores are the same


def sample_value(sample: Sample, objective: Objective) -> float:
    """The objective's figure of one sample, in its own unit. `ttft_ms.p99` looks into the latency's percentiles."""
    name, _, percentile = objective.metric.partition(".")
    value = getattr(sample, name)
    return float(value[percentile] if percentile else value)


def score(trial: Trial, objective: Objective) -> float | None:
    """Mean over the trial's samples; None unless the trial is OK. All trials have the same seeds, so means compare."""
    if not trial.ok or not trial.samples:
        return None
    values = [sample_value(sample, objective) for sample in trial.samples]
    return sum(values) / len(values)


def evidence(trial: Trial) -> Trial:
    """The trial as what it measured: one whose settings were not active counts for the candidate that was, as an OK trial."""
    if trial.outcome is Outcome.NOT_AS_REQUESTED and trial.credited_to is not None and trial.samples:
        return dataclasses.replace(trial, candidate=trial.credited_to, outcome=Outcome.OK)
    return trial


def better_by(value: float, reference: float, objective: Objective) -> float:
    """Ratio of the two, oriented so that more than 1 is better than the reference."""
    return value / reference if objective.maximise else reference / value


def ranked(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """OK candidates of the search, best first; within 2% of the best of the rest, the one with the fewest overrides leads."""
    seen = [evidence(trial) for trial in trials if trial.phase == "search"]
    scored = {trial.number: score(trial, objective) for trial in seen}
    left = [trial for trial in seen if scored[trial.number] is not None and not trial.candidate.is_baseline]
    order: list[Trial] = []
    while left:
        values = [scored[trial.number] for trial in left]
        best = max(values) if objective.maximise else min(values)
        tied = [t for t in left if better_by(scored[t.number], best, objective) >= 1 - TIE]
        first = min(tied, key=lambda t: (t.candidate.overrides, -better_by(scored[t.number], best, objective)))
        order.append(first)
        left.remove(first)
    return order
