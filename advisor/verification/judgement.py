"""Does the profile still hold? From the fresh launches of a verification. Pure. The rules are docs/verify.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.measure.taints import tainted
from advisor.records import Candidate, Decision, Interval, Objective, Outcome, Trial, Verdict
from advisor.serving_profile.schema import Profile, Side
from advisor.units import changes
from advisor.verdict.decide import MIN_GAIN
from advisor.verdict.disturbed import MOST
from advisor.verdict.fresh import BASELINE, failure, figures, fresh
from advisor.verification.figure import Held, Was, judged, launches_needed, ratio, was

_FIELDS = {"goodput": "goodput_requests_s", "max_concurrency": "load", "max_rate": "load"}
_OTHERWISE = "output_tok_s"  # every profile has it


@dataclass(frozen=True)
class FigureCheck:
    """One side's figure. `now`: each present launch's, in the order of the rounds; `ratio`: present mean over the profile's."""

    side: str  # default, tuned or challenger
    metric: str
    before: Was
    now: tuple[float, ...]
    ratio: Interval | None
    held: Held
    needed: int | None = None  # launches that would settle an open one


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
    checks = tuple(_figure(profile, trials, objective, name, item, tolerance) for name, item in sides.items())
    found = _verdict(profile, trials, arm, verdict)
    # A challenger is no recommendation: its figure is told, and the verdict alone judges it.
    claims = [check.held for check in checks if check.side != "challenger"] + [found.held or Held.HOLDS]
    notes = tuple(note for name, item in sides.items() for note in _remarks(trials, name, item, objective))
    return Judgement(worst(claims), checks, found, notes)


def worst(claims: Sequence[Held]) -> Held:
    """One claim that is refuted refutes the profile; else one that is open leaves it open."""
    return next((held for held in (Held.FAILS, Held.UNCLEAR) if held in claims), Held.HOLDS)


def compared_metric(profile: Profile, metric: str) -> str:
    """The objective's, or output tokens a second where the profile has no figure of it (`ttft_ms.p90`)."""
    sides = [profile.measured.default, profile.other_side()[1]]
    told = all(getattr(side, _field(metric), None) is not None for side in sides if side is not None)
    return metric if told else _OTHERWISE


def _field(metric: str) -> str:
    name, _, percentile = metric.partition(".")
    return f"{name.removesuffix('_ms')}_{percentile}_ms" if percentile else _FIELDS.get(name, name)


def _figure(
    profile: Profile, trials: Sequence[Trial], objective: Objective, name: str, item: Candidate, tolerance: float
) -> FigureCheck:
    metric = compared_metric(profile, objective.metric)
    side: Side | None = getattr(profile.measured, name)
    told = getattr(side, _field(metric)) if side else None
    now = _now(trials, item, dataclasses.replace(objective, metric=metric, secondary=()))
    if side is None or told is None:
        return FigureCheck(name, metric, Was(0.0, 0), now, None, Held.UNCLEAR)
    before = was(told, side.launches)
    found = ratio(before, now)
    held = judged(found, tolerance)
    if held is Held.FAILS and _mostly_disturbed(trials, item):
        held = Held.UNCLEAR  # what other programs did is nothing against the profile
    needed = launches_needed(before, now, tolerance) if judged(found, tolerance) is Held.UNCLEAR else None
    return FigureCheck(name, metric, before, now, found, held, needed)


def _now(trials: Sequence[Trial], item: Candidate, objective: Objective) -> tuple[float, ...]:
    try:
        found = figures(trials, item, objective)
    except ValueError:  # a sample without the figure
        return ()
    return tuple(found[number] for number in sorted(found))


def _mostly_disturbed(trials: Sequence[Trial], item: Candidate) -> bool:
    good = [trial for trial in fresh(trials, item).values() if trial.ok]
    return sum(bool(tainted(trial)) for trial in good) > MOST * len(good)


def _verdict(
    profile: Profile, trials: Sequence[Trial], arm: Candidate | None, verdict: Verdict | None
) -> VerdictCheck:
    before, told = profile.decision.outcome, profile.decision.ratio
    ratio_before = Interval(told.value, told.low, told.high) if told else None
    if arm is None or verdict is None:
        return VerdictCheck(before, ratio_before, None, None, _untried(profile))
    held, why = _still_true(before, verdict, _is_refuted(trials, arm, verdict))
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


def _is_refuted(trials: Sequence[Trial], arm: Candidate, verdict: Verdict) -> bool:
    """Whether nothing is left of a gain: it cannot be as large as an override has to gain, or its server failed.

    A measurement that is not valid, because the client set the pace here, say, is no fault of the recommendation.
    """
    ended = {trial.outcome for trial in fresh(trials, arm).values() if not trial.ok}
    if ended:
        return ended != {Outcome.INVALID_MEASUREMENT}
    lost = any(item.failed for item in verdict.finalists)  # the SLO, its proof
    return lost or (verdict.ratio is not None and verdict.ratio.high < 1 + MIN_GAIN)


def _unjudged(trials: Sequence[Trial], arm: Candidate) -> str:
    """A gain of a server whose answers nobody could judge is not one that can be recommended."""
    launches = [trial for trial in fresh(trials, arm).values() if trial.ok]
    if any(trial.gate and trial.gate.passed for trial in launches):
        return ""
    reasons = [trial.gate.reason for trial in launches if trial.gate and trial.gate.reason]
    return f"its output could not be judged: {reasons[-1] if reasons else 'the server did not answer the fixed prompts'}"


def _remarks(trials: Sequence[Trial], name: str, item: Candidate, objective: Objective) -> list[str]:
    """Fresh launches without a figure, or disturbed; the default's own output where it is wrong."""
    why = failure(trials, item, objective)
    found = [f"{name}: a fresh launch failed: {why}"] if why else []
    launches = [trial for trial in fresh(trials, item).values() if trial.ok]
    bad = [taints for trial in launches if (taints := tainted(trial))]
    found += [f"{name}: {len(bad)} of {len(launches)} launches were disturbed: {bad[0][0]}"] if bad else []
    gates = [trial.gate for trial in fresh(trials, item).values() if trial.gate]
    if item.is_baseline:
        found += [gate.reason for gate in gates[-1:] if gate.passed is False]
    return found


def gain_told(interval: Interval | None, maximise: bool = True) -> str:
    """`+3.1% (95% interval +1.0% to +5.2%)`; the ratio of a time, of which more than 1 is better, as the change of the time."""
    if interval is None:
        return "no figure"
    value, low, high = changes(interval.value, interval.low, interval.high, maximise)
    return f"{value} (95% interval {low} to {high})"
