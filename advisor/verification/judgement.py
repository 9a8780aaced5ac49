"""Does the profile still hold? From the fresh launches of a verification. Pure. The rules are docs/verify.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.measure.taints import tainted
from advisor.records import Candidate, Decision, Interval, Objective, Outcome, Trial, Verdict
from advisor.search.scores import slo_breaches
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.values import Ratio
from advisor.units import changes
from advisor.verdict.decide import MIN_GAIN
from advisor.verdict.fresh import BASELINE, failure, fresh
from advisor.verification.checks import FigureCheck, compared_metrics, figure_check, mostly_disturbed, one_metric
from advisor.verification.figure import Held
from advisor.verification.slo import SloCheck, slo_check


@dataclass(frozen=True)
class VerdictCheck:
    """The profile's decision against the present launches; `verdict` None: nobody but the default was launched."""

    before: Decision
    ratio_before: Interval | None
    verdict: Verdict | None
    held: Held | None  # None: it was not tried
    why: str  # as the end of "verdict: ..."


@dataclass(frozen=True)
class Judgement:
    held: Held
    figures: tuple[FigureCheck, ...]
    verdict: VerdictCheck
    notes: tuple[str, ...] = ()
    slo: SloCheck | None = None  # of what the profile serves with


def judge(
    profile: Profile,
    trials: Sequence[Trial],
    objective: Objective,
    arm: Candidate | None,
    verdict: Verdict | None,
    tolerance: float,
) -> Judgement:
    """`arm`: who was launched beside the default; `verdict`: what the fresh launches say of it."""
    sides = {"default": BASELINE} | ({profile.other_side()[0]: arm} if arm else {})
    metrics = [one_metric(objective, metric) for metric in compared_metrics(profile, objective)]
    checks = tuple(figure_check(profile, trials, one, side, tolerance) for side in sides.items() for one in metrics)
    slo = _slo(profile, trials, objective, sides)
    found = _verdict(profile, trials, objective, arm, verdict)
    # A challenger is no recommendation: its figure is told, and the verdict alone judges it.
    claims = [check.held for check in checks if check.side != "challenger"]
    claims += [held for held in (found.held, slo.held if slo else None) if held]
    notes = tuple(note for name, item in sides.items() for note in _remarks(trials, name, item, objective))
    return Judgement(worst(claims), checks, found, notes, slo)


def worst(claims: Sequence[Held]) -> Held:
    """One claim that is refuted refutes the profile; else one that is open leaves it open."""
    return next((held for held in (Held.FAILS, Held.UNCLEAR) if held in claims), Held.HOLDS)


def _slo(
    profile: Profile, trials: Sequence[Trial], objective: Objective, sides: Mapping[str, Candidate]
) -> SloCheck | None:
    name = "tuned" if "tuned" in sides else "default"
    found = slo_check(name, getattr(profile.measured, name), trials, sides[name], objective)
    if found and found.held is Held.FAILS and mostly_disturbed(trials, sides[name]):
        return replace(found, held=Held.UNCLEAR)
    return found


def _verdict(
    profile: Profile, trials: Sequence[Trial], objective: Objective, arm: Candidate | None, verdict: Verdict | None
) -> VerdictCheck:
    before, told = profile.decision.outcome, profile.decision.ratio
    ratio_before = Interval(told.value, told.low, told.high) if told else None
    if arm is None or verdict is None:
        return VerdictCheck(before, ratio_before, None, None, _untried(profile))
    lost = _gain_is_gone(profile, trials, objective, verdict)
    held, why = _still_true(before, verdict, _is_refuted(trials, arm, verdict, lost))
    if held is Held.HOLDS and before is Decision.IMPROVED and (unjudged := _unjudged(trials, arm)):
        held, why = Held.UNCLEAR, unjudged
    return VerdictCheck(before, ratio_before, verdict, held, why)


def _untried(profile: Profile) -> str:
    if profile.decision.challenger and profile.decision.outcome is not Decision.IMPROVED:
        return "not tried again (--challenger launches the candidate that was not chosen)"
    return "nothing was compared with the default"


def _still_true(before: Decision, verdict: Verdict, refuted: bool) -> tuple[Held, str]:
    """An inconclusive profile claims nothing of a gain, so nothing can refute it.

    A gain that these launches merely fail to show is not refuted: that takes an interval without one, or a launch that failed.
    """
    now = verdict.decision
    if before is Decision.INCONCLUSIVE:
        settled = now is not Decision.INCONCLUSIVE
        return Held.HOLDS, f"it is settled now: {now.value}; tune again for a profile that says so" if settled else "still open"
    if now is before:
        return Held.HOLDS, "still true"
    if now is Decision.IMPROVED or (before is Decision.IMPROVED and refuted):
        return Held.FAILS, f"no longer true: {now.value}"
    return Held.UNCLEAR, "these launches do not settle it"


def _is_refuted(trials: Sequence[Trial], arm: Candidate, verdict: Verdict, gain_is_gone: bool) -> bool:
    """Whether nothing is left of what was claimed: the gain, or its server failed.

    A measurement that is not valid, because the client set the pace here, say, is no fault of the recommendation.
    """
    ended = {trial.outcome for trial in fresh(trials, arm).values() if not trial.ok}
    if ended:
        return ended != {Outcome.INVALID_MEASUREMENT}
    return gain_is_gone or any(item.failed for item in verdict.finalists)  # the SLO, its proof


def _gain_is_gone(profile: Profile, trials: Sequence[Trial], objective: Objective, verdict: Verdict) -> bool:
    """Whether no gain as large as an override has to have is left in any objective, or one of them is surely lost.

    Where the profile claims no gain, but that the default breaks the SLO: whether the default met it on each launch.
    """
    if _is_by_slo(profile, objective):
        launches = [trial for trial in fresh(trials, BASELINE).values() if trial.ok]
        return bool(launches) and not any(slo_breaches(trial, objective) for trial in launches)
    known = [ratio for ratio in (verdict.ratio, *(item.ratio for item in verdict.others)) if ratio is not None]
    if objective.secondary and any(ratio.high < 1 and ratio.value <= 1 - MIN_GAIN for ratio in known):
        return True  # a trade is no improvement
    return len(known) == len(objective.metrics) and all(ratio.high < 1 + MIN_GAIN for ratio in known)


def _is_by_slo(profile: Profile, objective: Objective) -> bool:
    """Whether it is `improved` though no objective gained: because it meets the SLO and the default does not."""
    decision = profile.decision
    gains = [decision.ratio, *(item.ratio for item in decision.others or [])]
    return objective.constrained and not any(ratio is not None and ratio.low > 1 for ratio in gains)


def _unjudged(trials: Sequence[Trial], arm: Candidate) -> str:
    """A gain of a server whose answers nobody could judge is not one that can be recommended."""
    launches = [trial for trial in fresh(trials, arm).values() if trial.ok]
    if any(trial.gate and trial.gate.passed for trial in launches):
        return ""
    reasons = [trial.gate.reason for trial in launches if trial.gate and trial.gate.reason]
    return f"its output could not be judged: {reasons[-1] if reasons else 'the server did not answer the fixed prompts'}"


def _remarks(trials: Sequence[Trial], name: str, item: Candidate, objective: Objective) -> list[str]:
    """Fresh launches without a figure, or disturbed; the default's own output where it is wrong. The SLO has a line of its own."""
    why = failure(trials, item, replace(objective, slo=()))
    told = why if why is None or why.startswith("a fresh launch") else f"a fresh launch failed: {why}"
    found = [f"{name}: {told}"] if told else []
    launches = [trial for trial in fresh(trials, item).values() if trial.ok]
    bad = [taints for trial in launches if (taints := tainted(trial))]
    found += [f"{name}: {len(bad)} of {len(launches)} launches were disturbed: {bad[0][0]}"] if bad else []
    gates = [trial.gate for trial in fresh(trials, item).values() if trial.gate]
    if item.is_baseline:
        found += [gate.reason for gate in gates[-1:] if gate.passed is False]
    return found


def gain_told(interval: Interval | Ratio | None, maximise: bool = True) -> str:
    """`+3.1% (95% interval +1.0% to +5.2%)`; the ratio of a time, of which more than 1 is better, as the change of the time."""
    if interval is None:
        return "no figure"
    value, low, high = changes(interval.value, interval.low, interval.high, maximise)
    return f"{value} (95% interval {low} to {high})"
