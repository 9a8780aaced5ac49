"""The search: propose, launch, tell, until the budget or the space is used up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.errors import LaunchesFailed
from advisor.launch.failure import signature
from advisor.records import Candidate, Objective, Outcome, Trial
from advisor.search.budget import Budget
from advisor.search.sampler import Sampler
from advisor.search.scores import evidence, scores, slo_violation

FAILURES_IN_A_ROW = 4  # so many first launches failing with one cause means that the next will too


def search(
    launch: Callable[[Candidate], Trial],
    sampler: Sampler,
    budget: Budget,
    objective: Objective,
    done: Callable[[], Sequence[Trial]],
) -> str:
    """Launch candidates until a reason to stop, which is returned. `done()` gives all trials of the study so far.

    Raises LaunchesFailed when the first few candidates all failed for one cause.
    """
    for trial in done():
        if trial.phase != "confirm" and trial.outcome is not Outcome.INTERRUPTED:
            teach(sampler, trial, objective)
    while True:
        reason = budget.stop_reason(done())
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


def check_common_failure(searched: Sequence[Trial]) -> None:
    """Raises LaunchesFailed when no candidate worked so far and the first few failed for one cause."""
    ended = [trial for trial in searched if trial.outcome is not Outcome.INTERRUPTED]
    if len(ended) < FAILURES_IN_A_ROW or any(trial.ok for trial in ended):
        return
    causes = {(trial.outcome, signature(trial.reason)) for trial in ended}
    if len(causes) == 1:
        first = ended[0]
        raise LaunchesFailed(
            f"the first {len(ended)} candidates all ended as {first.outcome.value}: {first.reason}",
            f"the log of one of them: {first.folder}/server.log in the study's folder",
        )
