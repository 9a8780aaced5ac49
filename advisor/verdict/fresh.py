"""Views of the fresh launches: which candidates had some, what they gave, round by round. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from advisor.measure.load_search import is_open, left_open
from advisor.records import Candidate, Objective, Outcome, Trial
from advisor.search.scores import score, slo_breaches
from advisor.verdict.statistics import Comparison, compare

BASELINE = Candidate()
_LOADS = {"max_concurrency": "concurrency", "max_rate": "rate"}


def fresh(trials: Sequence[Trial], candidate: Candidate) -> dict[int, Trial]:
    """round -> the latest launch of the candidate in the confirmation; one that a person stopped is none."""
    return {
        trial.round: trial
        for trial in trials
        if trial.phase == "confirm"
        and trial.round is not None
        and trial.candidate.key == candidate.key
        and trial.outcome is not Outcome.INTERRUPTED
    }


def launched(trials: Sequence[Trial]) -> list[Candidate]:
    """Candidates other than the baseline that were launched afresh, in the order of their first launch."""
    found = {
        trial.candidate.key: trial.candidate
        for trial in trials
        if trial.phase == "confirm" and not trial.candidate.is_baseline and trial.outcome is not Outcome.INTERRUPTED
    }
    return list(found.values())


def tried(trials: Sequence[Trial], candidate: Candidate) -> set[int]:
    """Rounds in which both it and the baseline were launched, whatever came of it."""
    return set(fresh(trials, BASELINE)) & set(fresh(trials, candidate))


def figures(trials: Sequence[Trial], candidate: Candidate, objective: Objective) -> dict[int, float]:
    """round -> mean over the launch's seeds, of the launches that were measured. A ratio needs figures above zero."""
    scored = {number: score(trial, objective) for number, trial in fresh(trials, candidate).items()}
    return {number: value for number, value in scored.items() if value is not None and value > 0}


def failure(trials: Sequence[Trial], candidate: Candidate, objective: Objective) -> str | None:
    """Why the candidate cannot win whatever else it gave: a fresh launch that failed, or whose figure does not count."""
    for trial in fresh(trials, candidate).values():
        if not trial.ok:
            return f"{trial.outcome.value}: {trial.reason}"
        value = score(trial, objective)
        if value is None or value <= 0:
            return f"a fresh launch gave no {objective.metric} that counts"
        missed = slo_breaches(trial, objective)
        if missed:
            return f"a fresh launch missed the SLO: {', '.join(missed)}"
    return None


def comparison(
    trials: Sequence[Trial], candidate: Candidate, objective: Objective, others: Sequence[Candidate] = ()
) -> Comparison | None:
    """The candidate against the baseline; `others` are launched candidates whose launches help to tell the noise."""
    further = [figures(trials, other, objective) for other in others if other.key != candidate.key]
    baseline, arm = figures(trials, BASELINE, objective), figures(trials, candidate, objective)
    found = compare(baseline, arm, [item for item in further if item], objective.maximise)
    return found and blurred(found, trials, candidate, objective)


def blurred(found: Comparison, trials: Sequence[Trial], candidate: Candidate, objective: Objective) -> Comparison:
    """No more exact than the searches for a load are: either arm's highest may lie above the one that was found."""
    if objective.metric not in _LOADS:
        return found
    below, above = (_left_open(trials, arm, objective) for arm in (BASELINE, candidate))
    return dataclasses.replace(found, blur=below, blur_above=above)


def _left_open(trials: Sequence[Trial], arm: Candidate, objective: Objective) -> float:
    """Mean over the arm's launches of what their searches for the highest load leave open."""
    launches = fresh(trials, arm)
    kind = _LOADS[objective.metric]
    return statistics.fmean(left_open(launches[number].loads, kind) for number in figures(trials, arm, objective))


def no_limit(trials: Sequence[Trial], objective: Objective) -> str:
    """A sentence where the default's searches found no load that misses the SLO: nothing can be shown to bear more than it."""
    launches = [launch.loads for launch in fresh(trials, BASELINE).values() if launch.ok]
    if objective.metric not in _LOADS or not any(map(is_open, launches)):
        return ""
    return (
        "the default met the SLO at every load tried, so that its own highest load is not known: a tighter --slo, or "
        "--objective output_tok_s at a fixed load, would tell them apart"
    )
