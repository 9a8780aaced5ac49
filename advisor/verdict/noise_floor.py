"""The noise floor where nothing is left to confirm: the default alone on fresh launches, as far as the budget lasts. Pure.

Where a finalist was launched afresh, so was the default beside it, and nothing more is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Objective, Trial
from advisor.search.budget import Budget, typical_cost_s
from advisor.search.scores import measured_default, slo_breaches
from advisor.units import duration
from advisor.verdict.fresh import BASELINE, figures, fresh

LEAST = 2  # launches that have a deviation
MOST = 3  # as many as a confirmation begins with: of two, a deviation is mostly luck


def wanted(budget: Budget) -> int:
    """Fresh launches of the default alone, those that failed included."""
    return max(LEAST, min(MOST, budget.confirm_rounds))


def is_due(trials: Sequence[Trial], objective: Objective, budget: Budget) -> bool:
    """Whether one more launch of the default is worth its seconds, now that no finalist is to be launched any more."""
    if len(fresh(trials, BASELINE)) >= wanted(budget) or no_figure(trials, objective):
        return False
    return _needed_s(trials, objective) <= budget.left_s(trials)


def why_none(trials: Sequence[Trial], objective: Objective, budget: Budget) -> str:
    """Why the noise floor was not measured, as what follows a colon."""
    if reason := no_figure(trials, objective):
        return reason
    failed = [trial for trial in fresh(trials, BASELINE).values() if not trial.ok]
    if failed:
        return f"a fresh launch of it ended as {failed[-1].outcome.value}: {failed[-1].reason}"
    left_s = max(budget.left_s(trials), 0.0)
    return f"it takes about {duration(_needed_s(trials, objective))}, the budget leaves {duration(left_s)}"


def no_figure(trials: Sequence[Trial], objective: Objective) -> str:
    """Why launches of the default could not differ by anything that tells something; empty where they could."""
    default = measured_default(trials, objective)
    if default is None:
        return f"the default has no {objective.metric}"
    if objective.find_load and slo_breaches(default, objective):
        return "no load meets the SLO on the default"
    if objective.metric == "goodput" and not any(sample.goodput_requests_s for sample in default.samples):
        return "not one request of the default is within the SLO"
    return ""


def _needed_s(trials: Sequence[Trial], objective: Objective) -> float:
    """Until there is a deviation; one launch at least."""
    return max(1, LEAST - len(figures(trials, BASELINE, objective))) * typical_cost_s(trials)
