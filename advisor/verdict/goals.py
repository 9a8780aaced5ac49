"""The verdict where more counts than one figure: further objectives, the SLO, the Pareto front, the load. Pure.

`decide` judges the first objective, `with_goals` turns its verdict into that of the study. The rules are in docs/objectives.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.measure.saturation import load_note
from advisor.records import Candidate, Compared, Decision, FrontPoint, Interval, Objective, Trial, Verdict, Workload
from advisor.search.pareto import pareto_front
from advisor.search.scores import evidence, measured_default, scores, slo_breaches, slo_violation
from advisor.units import percent
from advisor.verdict.fresh import BASELINE, comparison, failure, fresh, launched
from advisor.verdict.sequential import ERROR, MIN_GAIN


def with_goals(
    verdict: Verdict, trials: Sequence[Trial], objective: Objective, workload: Workload, first: int = 3
) -> Verdict:
    """The study's verdict. `first`: fresh launches an arm that a decision needs at least."""
    verdict = _with_others(verdict, trials, objective, first)
    if objective.constrained:
        verdict = _with_slo(verdict, trials, objective, first)
    verdict = _with_load(verdict, trials, objective, workload)
    return dataclasses.replace(verdict, front=_front(verdict, trials, objective))


# ---------------------------------------------------------------- several objectives


def _with_others(verdict: Verdict, trials: Sequence[Trial], objective: Objective, first: int) -> Verdict:
    """A gain in one objective that costs another is a trade, and no improvement; a gain in any of them without a loss is one."""
    if verdict.challenger is None or not verdict.others:
        return verdict
    told = ", ".join(map(_told, verdict.others))
    reason = f"{verdict.reason}; {told}"
    if verdict.decision is Decision.IMPROVED:
        if any(item.standing == "worse" and _is_loss(item.ratio) for item in verdict.others):
            return _kept(verdict, f"{reason}: a trade, not an improvement; it is in the Pareto front")
        return dataclasses.replace(verdict, reason=reason)
    gain = _proven_gain(verdict, trials, objective, first)
    if gain is None or any(_is_loss(ratio) for ratio in (verdict.ratio, *(item.ratio for item in verdict.others))):
        return dataclasses.replace(verdict, reason=reason)
    seen = f"{objective.metric} {_interval(verdict.ratio)}"
    return dataclasses.replace(
        verdict,
        decision=Decision.IMPROVED,
        winner=verdict.challenger,
        reason=f"{verdict.challenger.label} gave {told}, without a loss in the first objective ({seen})",
    )


def _proven_gain(verdict: Verdict, trials: Sequence[Trial], objective: Objective, first: int) -> str | None:
    """The first further objective that is surely better. The error of all of them together is that of one (Bonferroni)."""
    arms = launched(trials)
    for one in objective.each[1:]:
        found = comparison(trials, verdict.challenger or BASELINE, one, arms)
        if found is None or found.launches < first or found.ratio < 1 + MIN_GAIN:
            continue
        if found.interval(ERROR / len(objective.secondary) / max(1, len(arms))).low > 1:
            return one.metric
    return None


def _is_loss(ratio: Interval | None) -> bool:
    """Measured as worse by 2% or more, whether proven or not."""
    return ratio is not None and ratio.value <= 1 - MIN_GAIN


def _told(item: Compared) -> str:
    if item.ratio is None:
        return f"{item.metric} was not measured often enough"
    unclear = item.standing in ("same", "unclear")
    return f"{item.metric} {_interval(item.ratio)}{', not beyond the noise' if unclear else ''}"


def _interval(ratio: Interval | None) -> str:
    return f"{percent(ratio.value)} [{percent(ratio.low)}, {percent(ratio.high)}]" if ratio else "not compared"


def _kept(verdict: Verdict, reason: str) -> Verdict:
    return dataclasses.replace(verdict, decision=Decision.KEEP_DEFAULTS, winner=BASELINE, reason=reason)


# ---------------------------------------------------------------- the SLO


def _with_slo(verdict: Verdict, trials: Sequence[Trial], objective: Objective, first: int) -> Verdict:
    """Say what breaks the SLO; a challenger that meets it on every launch, where the default never does, is better."""
    if verdict.challenger is None:
        return _without_challenger(verdict, trials, objective)
    launches = [trial for trial in fresh(trials, BASELINE).values() if trial.ok]
    broken = [found for trial in launches if (found := slo_breaches(trial, objective))]
    if not broken:
        return verdict
    said = f"the default breaks the SLO in {len(broken)} of {len(launches)} fresh launches ({broken[0][0]})"
    challenger = verdict.challenger
    met = [trial for trial in fresh(trials, challenger).values() if trial.ok]
    always = len(broken) == len(launches) >= first and len(met) >= first
    if verdict.decision is Decision.IMPROVED or not always or failure(trials, challenger, objective):
        return dataclasses.replace(verdict, reason=f"{verdict.reason}; {said}")
    return dataclasses.replace(
        verdict,
        decision=Decision.IMPROVED,
        winner=challenger,
        reason=f"{challenger.label} meets the SLO in all of {len(met)} fresh launches; {said}; "
        f"{objective.metric} {_interval(verdict.ratio)}",
    )


def _without_challenger(verdict: Verdict, trials: Sequence[Trial], objective: Objective) -> Verdict:
    measured = [evidence(trial) for trial in trials if trial.phase == "search"]
    broken = [trial for trial in measured if slo_breaches(trial, objective) and not trial.candidate.is_baseline]
    default = measured_default(trials, objective)
    missed = slo_breaches(default, objective) if default else []
    said = f"the default breaks the SLO ({missed[0]})" if missed else ""
    if not broken:
        return dataclasses.replace(verdict, reason=f"{verdict.reason}; {said}") if said else verdict
    nearest = min(broken, key=lambda trial: slo_violation(trial, objective))
    reason = (
        f"{len(broken)} candidates were measured and none meets the SLO; the nearest, {nearest.candidate.label}: "
        f"{slo_breaches(nearest, objective)[0]}"
    )
    return dataclasses.replace(verdict, reason=f"{reason}; {said}" if said else reason)


# ---------------------------------------------------------------- load and front


def _with_load(verdict: Verdict, trials: Sequence[Trial], objective: Objective, workload: Workload) -> Verdict:
    """Below saturation no setting can raise the throughput, which is why none did."""
    default = measured_default(trials, objective)
    if verdict.decision is Decision.IMPROVED or workload.rate is None or default is None:
        return verdict
    note = load_note(default.samples, workload, objective)
    return dataclasses.replace(verdict, reason=f"{verdict.reason}; {note}") if note else verdict


def _front(verdict: Verdict, trials: Sequence[Trial], objective: Objective) -> tuple[FrontPoint, ...]:
    """The search's front, with the recommendation that the fresh launches leave."""
    front = pareto_front(trials, objective)
    if not front.points:
        return ()
    points = [dataclasses.replace(point, recommended=False, why="") for point in front.points]
    if verdict.winner.key not in [point.candidate.key for point in points]:
        points += _point(verdict.winner, trials, objective)
    chosen, key = front.recommended, verdict.winner.key
    if chosen is not None and chosen.key == key:
        why = front.reason
    elif verdict.winner.is_baseline:
        why = f"fresh launches did not show that {chosen.label if chosen else 'another point'} is better"
    else:
        why = "fresh launches showed it to be better than the default"
    return tuple(
        dataclasses.replace(point, recommended=True, why=why) if point.candidate.key == key else point
        for point in points
    )


def _point(candidate: Candidate, trials: Sequence[Trial], objective: Objective) -> list[FrontPoint]:
    for trial in map(evidence, trials):
        if trial.candidate.key == candidate.key and (values := scores(trial, objective)) is not None:
            return [FrontPoint(candidate, dict(zip(objective.metrics, values, strict=True)))]
    return []
