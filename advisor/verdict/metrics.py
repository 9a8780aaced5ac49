"""All figures of both arms' fresh launches, and what the challenger costs. Pure.

A verdict on one figure must not hide what another one pays for it: settings that shorten the wait for the first token can
make every further token slower. Whether something got worse is a warning, not a claim to be defended against luck, so these
intervals are plain 95% ones: not widened for the number of looks, finalists or figures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from advisor.records import Candidate, Compared, Interval, Objective, Tradeoff, Trial
from advisor.verdict.fresh import BASELINE, blurred, figures, launched
from advisor.verdict.sequential import MIN_GAIN
from advisor.verdict.statistics import CONFIDENCE, Comparison, compare, mean_interval

METRICS = (
    "output_tok_s",
    "requests_s",
    "goodput",
    *(f"{name}.{point}" for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms") for point in ("p50", "p99")),
    "start_s",
)
SEEN_LOSS = 0.05  # of a figure of which the interval is too wide to say
_TAIL = (1 - CONFIDENCE) / 2


def ratios(trials: Sequence[Trial], challenger: Candidate, objective: Objective) -> dict[str, Interval]:
    """metric -> challenger over baseline as it is, with a 95% interval; only metrics that both arms have."""
    found = {metric: _comparison(trials, challenger, objective, metric) for metric in _metrics(objective)}
    return {metric: item.interval(_TAIL) for metric, item in found.items() if item}


def intervals(
    trials: Sequence[Trial], candidate: Candidate, partner: Candidate, objective: Objective
) -> dict[str, Interval]:
    """metric -> mean over the launches of `candidate` in the rounds that `partner` has too, in the metric's own unit."""
    found = {}
    for metric in _metrics(objective):
        one = _objective(objective, metric)
        own, other = (_figures(trials, arm, one) for arm in (candidate, partner))
        found[metric] = mean_interval([own[number] for number in sorted(own.keys() & other.keys())])
    return {metric: item for metric, item in found.items() if item}


def tradeoffs(trials: Sequence[Trial], challenger: Candidate, objective: Objective) -> tuple[Tradeoff, ...]:
    """What got worse, the objective itself left out: what is proven first, then by size.

    Proven: by 2% or more with the whole interval on that side. With two or three launches an interval is wide enough to hide a
    loss of a fifth, so one that is not proven is told too, from 5% and twice what launches differ by. With several loads each of
    them is looked at alone too, and the objective with it.
    """
    measured = [metric for metric in _metrics(objective) if metric != objective.metric]
    worse = [_lost(trials, challenger, objective, metric) for metric in measured]
    for load, part in _at_each_load(trials, objective).items():
        found = [_lost(part, challenger, objective, metric) for metric in _metrics(objective) if metric != "start_s"]
        worse += [dataclasses.replace(item, load=load) for item in found if item]
    told = [item for item in worse if item]
    return tuple(sorted(told, key=lambda item: (not item.proven, -abs(math.log(item.ratio.value)))))


def _lost(trials: Sequence[Trial], challenger: Candidate, objective: Objective, metric: str) -> Tradeoff | None:
    """The metric if it got worse; None where it did not, or was not measured."""
    found = _comparison(trials, challenger, objective, metric)
    if found is None:
        return None
    ratio, way = found.interval(_TAIL), 1 if _objective(objective, metric).maximise else -1
    lost = -way * found.gain
    proven = (ratio.high < 1 if way > 0 else ratio.low > 1) and lost >= math.log(1 + MIN_GAIN)
    if proven or lost >= max(math.log(1 + SEEN_LOSS), 2 * found.launch_deviation):
        return Tradeoff(metric, ratio, proven)
    return None


def _at_each_load(trials: Sequence[Trial], objective: Objective) -> dict[float, list[Trial]]:
    """The fresh launches as if each load were the only one. Empty for one load, and for loads that each launch finds for itself.

    A figure is the mean over all loads, in which a gain at one hides a loss at another.
    """
    own = [trial for trial in trials if trial.phase == "confirm"]
    loads = sorted({sample.load for trial in own for sample in trial.samples if sample.load is not None})
    if len(loads) < 2 or objective.find_load:
        return {}
    return {
        load: [dataclasses.replace(t, samples=tuple(s for s in t.samples if s.load == load)) for t in own] for load in loads
    }


def compared(trials: Sequence[Trial], challenger: Candidate, objective: Objective) -> tuple[Compared, ...]:
    """The objectives after the first, oriented: better or worse when the interval says so, same when neither seems so."""
    answers = []
    for one in objective.each[1:]:
        found = _comparison(trials, challenger, objective, one.metric)
        if found is None:
            answers.append(Compared(one.metric, "unclear"))
            continue
        gain = found.gain if one.maximise else -found.gain
        oriented = dataclasses.replace(found, gain=gain)
        ratio = oriented.interval(_TAIL)
        floor = max(math.log(1 + MIN_GAIN), found.launch_deviation)
        unshown = "same" if abs(gain) < floor else "unclear"
        standing = "better" if ratio.low > 1 else "worse" if ratio.high < 1 else unshown
        answers.append(Compared(one.metric, standing, ratio))
    return tuple(answers)


def _metrics(objective: Objective) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*objective.metrics, *METRICS)))


def _objective(objective: Objective, metric: str) -> Objective:
    return dataclasses.replace(objective, metric=metric, secondary=())


def _comparison(trials: Sequence[Trial], challenger: Candidate, objective: Objective, metric: str) -> Comparison | None:
    """Not oriented: above zero means more."""
    one = _objective(objective, metric)
    arms = [item for item in launched(trials) if item.key != challenger.key]
    baseline, arm, *others = (_figures(trials, item, one) for item in (BASELINE, challenger, *arms))
    found = compare(baseline, arm, [item for item in others if item])
    return found and blurred(found, trials, challenger, one)


def _figures(trials: Sequence[Trial], candidate: Candidate, objective: Objective) -> dict[int, float]:
    """Nothing where a sample lacks the figure."""
    try:
        return figures(trials, candidate, objective)
    except (ValueError, KeyError, TypeError):
        return {}
