"""Which candidates of the search are launched afresh. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence, Set

from advisor.records import Candidate, Objective, Trial
from advisor.search.budget import FINALISTS
from advisor.search.scores import TIE, better_by, evidence, gains, measured_default, ranked, sample_value, score
from advisor.verdict.fresh import failure, launched
from advisor.verdict.proof import loss
from advisor.verdict.quality import TOLERANCE
from advisor.verdict.statistics import same_launch_deviation


def choose(
    trials: Sequence[Trial], objective: Objective, most: int = FINALISTS, tolerance: float = TOLERANCE
) -> list[Candidate]:
    """Those that the search cannot tell from the best one, best first, at most `most` with those that failed afresh.

    The best of many noisy figures is rarely the best candidate, so its rivals within the noise get a chance too. One that
    failed when launched afresh, or lost its proof, is out; then the best of the rest is looked for, among those too that were
    dropped because they could not win against it, unless it is behind the default.
    """
    failed = {
        item.key for item in launched(trials) if failure(trials, item, objective) or loss(item, trials, tolerance)
    }
    left = [trial for trial in ranked(trials, objective) if trial.candidate.key not in failed]
    candidates = {trial.candidate.key: trial.candidate for trial in left}
    scored: dict[str, list[float]] = {key: [] for key in candidates}
    for trial in left:
        scored[trial.candidate.key].append(score(trial, objective))
    means = {key: statistics.fmean(values) for key, values in scored.items()}
    order = _as_ranked(trials, left, objective) if objective.secondary and left else list(means)
    floor = max(TIE, search_noise(trials, objective))
    if failed:
        for trial in _dropped(trials, objective, failed | candidates.keys()):
            candidates[trial.candidate.key] = trial.candidate
            means[trial.candidate.key] = trial.dropped.estimate[objective.metric]
            order.append(trial.candidate.key)
        order = [key for key in order if not _behind_default(means[key], trials, objective, floor)]
    if not order:
        return []
    if not objective.secondary:
        order.sort(key=means.__getitem__, reverse=objective.maximise)
    tied = [key for key in order if better_by(means[key], means[order[0]], objective) >= 1 - floor]
    return [candidates[key] for key in tied[: max(0, most - len(failed))]]


def _dropped(trials: Sequence[Trial], objective: Objective, others: Set[str]) -> list[Trial]:
    """Launches of the search that were not measured in full, with what they would have given; none of the `others`."""
    found = [trial for trial in map(evidence, trials) if trial.phase == "search" and trial.ok and trial.dropped]
    return [
        trial
        for trial in found
        if trial.candidate.key not in others and all(metric in trial.dropped.estimate for metric in objective.metrics)
    ]


def _behind_default(value: float, trials: Sequence[Trial], objective: Objective, floor: float) -> bool:
    default = measured_default(trials, objective)
    reference = score(default, objective) if default else None
    return bool(reference) and better_by(value, reference, objective) < 1 - floor


def _as_ranked(trials: Sequence[Trial], left: Sequence[Trial], objective: Objective) -> list[str]:
    """With several objectives the ranking weighs them all; trades never stand beside candidates that lose nothing."""
    default = measured_default(trials, objective) or left[0]
    trades = [min(gains(trial, default, objective)) < 1 - TIE for trial in left]
    return list(dict.fromkeys(t.candidate.key for t, trade in zip(left, trades, strict=True) if trade == trades[0]))


def search_noise(trials: Sequence[Trial], objective: Objective) -> float:
    """Relative standard deviation of a launch's mean, as far as its seeds tell: launches may differ by more, not by less."""
    if objective.metric == "start_s":  # one figure a launch
        return 0.0
    launches = []
    for trial in map(evidence, trials):
        if trial.phase in ("baseline", "search") and score(trial, objective) is not None:
            launches.append({item.pair_seed: sample_value(item, objective) for item in trial.samples})
    return same_launch_deviation(launches)
