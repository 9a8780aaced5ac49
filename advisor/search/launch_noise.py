"""By how much launches of one configuration differ, as far as a study tells so far. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from advisor.records import Objective, Sample, Trial
from advisor.search.race_noise import left_over
from advisor.search.scores import evidence, sample_value, score

# Output tokens a second of five launches of an 8B on an H200 differ by 0.6% (docs/evidence/noise-h200.json): counts like three.
KNOWN, KNOWN_COUNT = 0.006, 3
_ENOUGH = 3  # fresh launches of the default


def launch_noise(trials: Sequence[Trial], objective: Objective) -> float:
    """Relative standard deviation between launches, taken from an H200 until the study knows better.

    Fresh launches of the default tell it. Before there are three, the seeds of each launch tell the least that it can be: what is
    left of its samples after launch and seed, in their mean.
    """
    least = _pooled(*_within(trials, objective))
    fresh = [value for trial in trials if _is_fresh_default(trial) and (value := score(trial, objective) or 0) > 0]
    if len(fresh) < _ENOUGH:
        return math.sqrt(least)
    between = statistics.variance([math.log(value) for value in fresh])
    return math.sqrt(max(least, _pooled(between, len(fresh) - 1)))


def _is_fresh_default(trial: Trial) -> bool:
    return trial.phase == "confirm" and trial.candidate.is_baseline


def _pooled(variance: float, count: int) -> float:
    return (KNOWN_COUNT * KNOWN**2 + count * variance) / (KNOWN_COUNT + count)


def _within(trials: Sequence[Trial], objective: Objective) -> tuple[float, int]:
    """(variance of a launch's mean that its seeds tell, degrees of freedom behind it).

    Where launches have one sample only, their slices stand beside it: they are shorter, so that tells rather too much noise.
    """
    told = [evidence(trial) for trial in trials if trial.phase in ("baseline", "search")]
    measured = [trial for trial in told if trial.ok and not trial.dropped and trial.samples]
    least = min((len(trial.samples) for trial in measured), default=0)
    rows = [_logarithms((*trial.samples, *(trial.slices if least == 1 else ())), objective) for trial in measured]
    squares, degrees = left_over([row for row in rows if row])
    return (squares / degrees / least, degrees) if degrees else (0.0, 0)


def _logarithms(samples: Sequence[Sample], objective: Objective) -> dict[int, float]:
    """Of each seed's figure; empty where a launch has one figure only, or none above zero."""
    if objective.metric == "start_s":
        return {}
    values = {sample.pair_seed: sample_value(sample, objective) for sample in samples if not sample.problems}
    return {seed: math.log(value) for seed, value in values.items()} if min(values.values(), default=0) > 0 else {}
