"""Which candidates of the search are launched afresh. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

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
    failed when launched afresh, or lost its proof, is out; then the best of the rest is looked for.
    """
    failed = {
        item.key
        for item in launched(trials)
        if failure(trials, item, objective) or loss(item, trials, tolerance)
    }
    left = [trial for trial in ranked(trials, objective) if trial.candidate.key not in failed]
    if not left:
        return []
    candidates = {trial.candidate.key: trial.candidate for trial in left}
    scored: dict[str, list[float]] = {key: [] for key in candidates}
    for trial in left:
        scored[trial.candidate.key].append(score(trial, objective))
    means = {key: statistics.fmean(values) for key, values in scored.items()}
    if objective.secondary:
        order = _as_ranked(trials, left, objective)
    else:
        order = sorted(means, key=means.__getitem__, reverse=objective.maximise)
    floor = max(TIE, search_noise(trials, objective))
    tied = [key for key in order if better_by(means[key], means[order[0]], objective) >= 1 - floor]
    return [candidates[key] for key in tied[: max(0, most - len(failed))]]


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
