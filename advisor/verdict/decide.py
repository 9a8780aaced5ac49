"""The verdict, from fresh launches of the baseline and the finalists. Pure. The rule is docs/verdict.md."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.records import Candidate, Decision, Finalist, Invalid, Objective, Outcome, Trial, Verdict
from advisor.search.untried import NO_TIME, short
from advisor.units import change
from advisor.verdict.finalists import choose
from advisor.verdict.fresh import BASELINE, comparison, failure, figures, launched, no_limit, tried
from advisor.verdict.metrics import compared, intervals, ratios, tradeoffs
from advisor.verdict.proof import loss
from advisor.verdict.quality import TOLERANCE
from advisor.verdict.sequential import MIN_GAIN, Judgement, Looks, described, interval, judge, named, smallest_gain
from advisor.verdict.several import Figures, weighed
from advisor.verdict.statistics import Comparison, relative_deviation

__all__ = ["MIN_GAIN", "Standing", "decide", "standings", "with_search_end"]

_NOTHING_TRIED = "no other setting was tried"
_CUT_OFF = f"{_NOTHING_TRIED} to the end"
_NOTHING_WORKED = "no other setting started and measured well"


@dataclass(frozen=True)
class Standing:
    """A finalist after its fresh launches so far. `decision` None: more launches may tell."""

    candidate: Candidate
    decision: Decision | None
    reason: str  # a sentence whose subject is the candidate
    found: Comparison | None = None
    failure: str = ""  # of a fresh launch: it cannot win
    lost: str = ""  # its proof: it cannot win

    @property
    def gain(self) -> float:
        """Logarithm of the ratio; without pairs, less than any."""
        return self.found.gain if self.found else -math.inf


def standings(
    trials: Sequence[Trial],
    objective: Objective,
    first: int,
    last: int,
    ended: bool = False,
    tolerance: float = TOLERANCE,
) -> list[Standing]:
    """All that were launched afresh, in this order: improved, inconclusive, the rest, and by gain. Who cannot win comes last."""
    arms = launched(trials)
    looks = Looks(first, last, max(1, len(arms)))
    each = [_standing(trials, objective, arm, arms, looks, ended) for arm in arms]
    found = [_after_proof(standing, trials, tolerance, objective) for standing in each]
    rank = {Decision.IMPROVED: 0, None: 1, Decision.INCONCLUSIVE: 1, Decision.KEEP_DEFAULTS: 2}
    return sorted(found, key=lambda item: (_is_out(item), rank[item.decision], -item.gain))


def _is_out(item: Standing) -> bool:
    """Not one whose output nobody could judge: its gain is an open question, like other inconclusive ones."""
    return bool(item.failure or item.lost) and item.decision is Decision.KEEP_DEFAULTS


def _standing(
    trials: Sequence[Trial], objective: Objective, arm: Candidate, arms: Sequence[Candidate], looks: Looks, ended: bool
) -> Standing:
    broken = failure(trials, arm, objective)
    if broken is not None:
        return Standing(arm, Decision.KEEP_DEFAULTS, f"failed when launched afresh: {broken}", failure=broken)
    found = comparison(trials, arm, objective, arms)
    if found is None or found.launches < looks.first:
        pairs = len(figures(trials, arm, objective).keys() & figures(trials, BASELINE, objective).keys())
        reason = f"has {pairs} of {looks.first} pairs of fresh launches with the default"
        return Standing(arm, Decision.INCONCLUSIVE if ended else None, reason, found)
    verdict = judge(found, looks, ended)
    told = f"gave {named(objective.metric, described(found, looks, objective.maximise), bool(objective.secondary))}"
    if objective.secondary:
        further = tuple(comparison(trials, arm, one, arms) for one in objective.each[1:])
        seen = Figures(found, further, compared(trials, arm, objective))
        verdict = weighed(verdict, told, seen, looks, ended)
    else:
        verdict = Judgement(verdict.decision, f"{told}: {verdict.reason}" if verdict.reason else told)
    if verdict.decision is Decision.INCONCLUSIVE and (why := no_limit(trials, objective)):
        verdict = Judgement(verdict.decision, f"{verdict.reason}; {why}")
    return Standing(arm, verdict.decision, verdict.reason, found)


def _after_proof(standing: Standing, trials: Sequence[Trial], tolerance: float, objective: Objective) -> Standing:
    """A finalist that lost its proof, or whose servers leave processes behind, stays in the list and cannot win."""
    found = None if standing.failure else loss(standing.candidate, trials, tolerance)
    if found is None:
        return standing
    told = change(standing.found.ratio, objective.maximise) if standing.found else ""
    gain = f"gave {named(objective.metric, told, bool(objective.secondary))} but " if told else ""
    return dataclasses.replace(standing, decision=found.decision, reason=f"{gain}{found.why}", lost=found.why)


def decide(
    trials: Sequence[Trial], objective: Objective, first: int = 3, last: int = 12, tolerance: float = TOLERANCE
) -> Verdict:
    """The verdict on what was launched; to be asked when no further launch will follow.

    Among improved finalists the one with the fewest overrides wins if its gain is within the noise of the largest. Those that lost
    their proof are named, whoever leads then. `tolerance`: of the quality command's score.
    """
    found = standings(trials, objective, first, last, ended=True, tolerance=tolerance)
    if not found:
        return _without_launches(trials, objective, tolerance)
    leader = _simplest(found)
    improved = leader.decision is Decision.IMPROVED
    looks = Looks(first, last, len(found))
    told = {"finalists": tuple(_finalist(item, looks) for item in found), **_noise(trials, leader, objective, looks)}
    told |= _figures(trials, leader, objective) if leader.found else _baseline_alone(trials, objective)
    reason = f"{_subject(leader, found)} {leader.reason}"
    fallen = [f"{item.candidate.label} {item.reason}" for item in found if item.lost and item is not leader]
    return Verdict(
        decision=leader.decision or Decision.INCONCLUSIVE,
        reason="; ".join([reason, *fallen, *_not_launched(trials, objective, tolerance), *_too_fast(trials)]),
        objective=objective.metric,
        winner=leader.candidate if improved else BASELINE,
        challenger=leader.candidate,
        ratio=interval(leader.found, looks) if leader.found else None,
        launches=leader.found.launches if leader.found else 0,
        **told,
    )


def _not_launched(trials: Sequence[Trial], objective: Objective, tolerance: float) -> list[str]:
    """The search's best of those that can still win, where the budget did not last for its fresh launches."""
    known = {item.key for item in launched(trials)}
    best = next(iter(choose(trials, objective, tolerance=tolerance)), None)
    if best is None or best.key in known:
        return []
    return [f"the budget left no time to launch {best.label} afresh"]


def _too_fast(trials: Sequence[Trial]) -> list[str]:
    """Candidates whose samples the client could not follow, or that were over too soon: they may be the best of all."""
    found = {}
    for trial in trials:
        if trial.phase == "search" and trial.outcome is Outcome.INVALID_MEASUREMENT and _may_be_fast(trial):
            found.setdefault(trial.candidate.label, trial.reason)
    if not found:
        return []
    label, why = next(iter(found.items()))
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"{label}{others} could not be measured and may be faster ({why})"]


def _may_be_fast(trial: Trial) -> bool:
    """A sample with nothing else against it: answers that are cut short are over soon as well."""
    fast = {Invalid.CLIENT_BOUND, Invalid.TOO_SHORT}
    return any(sample.classes and fast.issuperset(sample.classes) for sample in trial.samples)


def _subject(leader: Standing, found: Sequence[Standing]) -> str:
    label = leader.candidate.label
    if leader.decision is not Decision.KEEP_DEFAULTS or leader.lost:
        return label
    return f"{label}{_failed_too(found)}" if leader.failure else f"the best candidate, {label},"


def _failed_too(found: Sequence[Standing]) -> str:
    others = sum(bool(item.failure) for item in found) - 1
    return f" (and {others} more)" if others else ""


def _simplest(found: Sequence[Standing]) -> Standing:
    """The first, or among improved ones a simpler one that is as good within the noise floor."""
    won = [item for item in found if item.decision is Decision.IMPROVED]
    if not won:
        return found[0]
    floor = max(MIN_GAIN, won[0].found.launch_deviation)
    tied = [item for item in won if item.gain >= won[0].gain - floor]
    return min(tied, key=lambda item: (item.candidate.overrides, -item.gain))


def _finalist(item: Standing, looks: Looks) -> Finalist:
    ratio = interval(item.found, looks) if item.found else None
    launches = item.found.launches if item.found else 0
    reason = f"{item.candidate.label} {item.reason}"
    failed = item.failure or item.lost
    return Finalist(item.candidate, item.decision or Decision.INCONCLUSIVE, reason, launches, ratio, failed)


def _noise(trials: Sequence[Trial], leader: Standing, objective: Objective, looks: Looks) -> dict:
    """Baseline against baseline, and the gain that these launches could show.

    Of the leader's rounds: what the baseline gave on another day is not what these launches differ by.
    """
    every = figures(trials, BASELINE, objective)
    own = [value for number, value in every.items() if number in tried(trials, leader.candidate)]
    return {
        "noise": relative_deviation(own if len(own) > 1 else list(every.values())),
        "smallest_gain": smallest_gain(leader.found, looks) if leader.found else None,
    }


def _figures(trials: Sequence[Trial], leader: Standing, objective: Objective) -> dict:
    """Every metric of both arms, on the rounds that both have."""
    return {
        "baseline": intervals(trials, BASELINE, leader.candidate, objective),
        "tuned": intervals(trials, leader.candidate, BASELINE, objective),
        "ratios": ratios(trials, leader.candidate, objective),
        "tradeoffs": tradeoffs(trials, leader.candidate, objective),
        "others": compared(trials, leader.candidate, objective),
    }


def with_search_end(verdict: Verdict, why: str) -> Verdict:
    """Where nothing was compared with the default, with the reason of that. `why`: the search ended.

    Where all that was tried failed and time was up before the rest, nobody knows whether the default is to be kept.
    """
    if verdict.reason in (_NOTHING_TRIED, _CUT_OFF) and why:
        return dataclasses.replace(verdict, reason=f"{verdict.reason}: {why}")
    if verdict.reason == _NOTHING_WORKED and short(why) == NO_TIME:
        reason = f"{_NOTHING_WORKED}, and not all were tried: {why}"
        return dataclasses.replace(verdict, decision=Decision.INCONCLUSIVE, reason=reason)
    return verdict


def _baseline_alone(trials: Sequence[Trial], objective: Objective) -> dict:
    """Its figures, where there is nobody to compare it with."""
    return {"baseline": intervals(trials, BASELINE, BASELINE, objective)}


def _without_launches(trials: Sequence[Trial], objective: Objective, tolerance: float) -> Verdict:
    searched = [trial for trial in trials if trial.phase == "search"]
    if choose(trials, objective, tolerance=tolerance):
        decision, reason = Decision.INCONCLUSIVE, "no fresh launches were made"
    elif dropped := [trial for trial in searched if trial.ok and trial.dropped]:
        decision, reason = Decision.KEEP_DEFAULTS, "; ".join([_none_could_win(dropped, objective), *_too_fast(trials)])
    elif fast := _too_fast(trials):
        decision, reason = Decision.INCONCLUSIVE, fast[0]
    elif any(trial.outcome is not Outcome.INTERRUPTED for trial in searched):
        decision, reason = Decision.KEEP_DEFAULTS, _NOTHING_WORKED
    else:
        decision, reason = Decision.INCONCLUSIVE, _CUT_OFF if searched else _NOTHING_TRIED
    noise = relative_deviation(list(figures(trials, BASELINE, objective).values()))
    told = _baseline_alone(trials, objective)
    return Verdict(decision, reason, objective.metric, winner=BASELINE, noise=noise, **told)


def _none_could_win(dropped: Sequence[Trial], objective: Objective) -> str:
    """Nothing was left to confirm, because every candidate that started was behind by more than the noise."""
    estimates = {id(trial): trial.dropped.estimate.get(objective.metric, 0.0) for trial in dropped if trial.dropped}
    best = (max if objective.maximise else min)(dropped, key=lambda trial: estimates[id(trial)])
    reason = best.dropped.reason if best.dropped else ""
    others = f", the best of {len(dropped)}," if len(dropped) > 1 else ""
    return f"no candidate could win: {best.candidate.label}{others} was dropped {reason}"
