"""What counts beside the objectives' figures: the SLO, the load, the Pareto front. Pure.

`decide` judges the objectives, `with_goals` turns its verdict into that of the study. The rules are in docs/objectives.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.measure.saturation import api_server_note, load_note
from advisor.records import Candidate, Decision, FrontPoint, Objective, Trial, Verdict, Workload
from advisor.search.pareto import pareto_front
from advisor.search.scores import evidence, measured_default, scores, slo_breaches, slo_violation
from advisor.verdict.fresh import BASELINE, fresh
from advisor.verdict.several import told_interval


def with_goals(
    verdict: Verdict, trials: Sequence[Trial], objective: Objective, workload: Workload, first: int = 3
) -> Verdict:
    """The study's verdict. `first`: fresh launches an arm that a decision needs at least."""
    if objective.constrained:
        verdict = _with_slo(verdict, trials, objective, first)
    verdict = _with_nothing_good(verdict, trials, objective)
    verdict = _with_load(verdict, trials, objective, workload)
    return with_front(verdict, trials, objective)


def with_front(verdict: Verdict, trials: Sequence[Trial], objective: Objective) -> Verdict:
    """With the search's front, and as its recommended point what the verdict leaves: to be asked again when that changes."""
    return dataclasses.replace(verdict, front=_front(verdict, trials, objective))


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
    out = any(item.failed for item in verdict.finalists if item.candidate.key == challenger.key)
    if verdict.decision is Decision.IMPROVED or not always or out:
        return dataclasses.replace(verdict, reason=f"{verdict.reason}; {said}")
    return dataclasses.replace(
        verdict,
        decision=Decision.IMPROVED,
        winner=challenger,
        reason=f"{challenger.label} meets the SLO in all of {len(met)} fresh launches; {said}; "
        f"{objective.metric} {told_interval(verdict.ratio, objective.metric)}",
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
        f"{len(broken)} candidate{'s were' if len(broken) > 1 else ' was'} measured and none meets the SLO; "
        f"the nearest, {nearest.candidate.label}: "
        f"{slo_breaches(nearest, objective)[0]}"
    )
    return dataclasses.replace(verdict, reason=f"{reason}; {said}" if said else reason)


def _with_nothing_good(verdict: Verdict, trials: Sequence[Trial], objective: Objective) -> Verdict:
    """A goodput of zero has no ratio, so half a request stands in for it: a figure that nobody measured has to be told as one."""
    if "goodput" not in objective.metrics:
        return verdict
    default = measured_default(trials, objective)
    arms = {"the default": [trial for trial in fresh(trials, BASELINE).values() if trial.ok] or [default]}
    if verdict.challenger is not None:
        arms[verdict.challenger.label] = [trial for trial in fresh(trials, verdict.challenger).values() if trial.ok]
    without = [name for name, launches in arms.items() if any(launches) and not any(map(_has_good, launches))]
    if not without:
        return verdict
    told = f"not one request of {' or '.join(without)} was within the SLO: goodput is counted as that of half a request"
    return dataclasses.replace(verdict, reason=f"{verdict.reason}; {told}")


def _has_good(trial: Trial | None) -> bool:
    return trial is not None and any(sample.goodput_requests_s for sample in trial.samples)


# ---------------------------------------------------------------- load and front


def _with_load(verdict: Verdict, trials: Sequence[Trial], objective: Objective, workload: Workload) -> Verdict:
    """Below saturation, or where the API server is the limit, no setting can raise the throughput, which is why none did."""
    default = measured_default(trials, objective)
    if verdict.decision is Decision.IMPROVED or default is None:
        return verdict
    limited = workload.rate is not None or api_server_note(default.samples, objective.metric)
    note = load_note(default.samples, workload, objective) if limited else None
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
        why = _why_not(verdict, chosen)
    else:
        why = "fresh launches showed it to be better than the default"
    return tuple(
        dataclasses.replace(point, recommended=True, why=why) if point.candidate.key == key else point
        for point in points
    )


def _why_not(verdict: Verdict, chosen: Candidate | None) -> str:
    """Why the search's recommendation is none."""
    found = next((item for item in verdict.finalists if chosen is not None and item.candidate.key == chosen.key), None)
    if found and found.failed:
        return f"{found.candidate.label} cannot win: {found.failed}"
    if found and found.decision is Decision.IMPROVED:
        return f"fresh launches showed that {found.candidate.label} is better, but not that it can be trusted"
    return f"fresh launches did not show that {chosen.label if chosen else 'another point'} is better"


def _point(candidate: Candidate, trials: Sequence[Trial], objective: Objective) -> list[FrontPoint]:
    for trial in map(evidence, trials):
        if trial.candidate.key == candidate.key and (values := scores(trial, objective)) is not None:
            return [FrontPoint(candidate, dict(zip(objective.metrics, values, strict=True)))]
    return []
