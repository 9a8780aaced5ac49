"""The search: propose, launch, tell, until the budget or the space is used up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.records import Candidate, Objective, Outcome, Trial
from advisor.search.budget import Budget
from advisor.search.common_failure import check_common_failure
from advisor.search.sampler import Sampler
from advisor.search.scores import evidence, scores, slo_violation


def search(
    launch: Callable[[Candidate], Trial],
    sampler: Sampler,
    budget: Budget,
    objective: Objective,
    done: Callable[[], Sequence[Trial]],
) -> str:
    """Launch candidates until a reason to stop, which is returned. `done()` gives all trials of the study so far.

    Raises LaunchesFailed when one cause fails several times in a row (advisor/search/common_failure.py).
    """
    for trial in done():
        if trial.phase in ("baseline", "search") and trial.outcome is not Outcome.INTERRUPTED:
            teach(sampler, trial, objective)
    while True:
        reason = budget.stop_reason(done(), objective)
        if reason:
            return reason
        candidate = sampler.propose()
        if candidate is None:
            return "every distinct candidate was tried"
        trial = launch(candidate)
        teach(sampler, trial, objective)
        check_common_failure([item for item in done() if item.phase == "search"])


def teach(sampler: Sampler, trial: Trial, objective: Objective) -> None:
    """What was asked for gets the trial's scores, or none; a figure of other settings also answers for those that ran."""
    sampler.tell(trial.candidate, scores(trial, objective), slo_violation(trial, objective))
    seen = evidence(trial)
    if seen is not trial and sampler.is_untried(seen.candidate):
        sampler.tell(seen.candidate, scores(seen, objective), slo_violation(seen, objective))
