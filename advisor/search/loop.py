"""The search: propose, launch, tell, until the budget or the space is used up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.records import Candidate, Objective, Outcome, Rejection, Trial
from advisor.search.budget import Budget
from advisor.search.common_failure import check_common_failure
from advisor.search.sampler import Sampler
from advisor.search.scores import evidence, slo_violation, told_scores


def search(
    launch: Callable[[Candidate], Trial],
    sampler: Sampler,
    budget: Budget,
    objective: Objective,
    done: Callable[[], Sequence[Trial]],
    note: Callable[[str], None] = lambda _text: None,
    retry_failed: bool = False,
) -> str:
    """Launch candidates until a reason to stop, which is returned. `done()` gives all trials of the study so far.

    `note` is told what failures teach and which candidates are skipped for it. `retry_failed`: what failed in an earlier session
    counts as untried. Raises LaunchesFailed when one cause fails several times in a row (advisor/search/common_failure.py).
    """
    for trial in done():
        forgotten = retry_failed and trial.phase == "search" and not trial.ok
        if trial.phase in ("baseline", "search") and trial.outcome is not Outcome.INTERRUPTED and not forgotten:
            teach(sampler, trial, objective)
    while True:
        reason = budget.stop_reason(done(), objective)
        if reason:
            return reason
        before = len(sampler.skipped)
        candidate = sampler.propose()
        for line in skipped_lines(sampler.skipped[before:]):
            note(line)
        if candidate is None:
            return sampler.nothing_left
        trial = launch(candidate)
        for line in teach(sampler, trial, objective):
            note(line)
        check_common_failure([item for item in done() if item.phase == "search"])


def skipped_lines(skipped: Sequence[Rejection]) -> list[str]:
    """`not launched: A, B and 3 more: reason`, one line a reason."""
    labels: dict[str, list[str]] = {}
    for item in skipped:
        labels.setdefault(item.reason, []).append(item.candidate.label)
    return [
        f"not launched: {'; '.join(names[:2])}{f' and {len(names) - 2} more' if len(names) > 2 else ''}: {reason}"
        for reason, names in labels.items()
    ]


def teach(sampler: Sampler, trial: Trial, objective: Objective) -> list[str]:
    """What was asked for gets the trial's scores, or none; a figure of other settings also answers for those that ran.

    Returns what the sampler learned about failures, as sentences.
    """
    sampler.tell(trial.candidate, told_scores(trial, objective), slo_violation(trial, objective))
    seen = evidence(trial)
    if seen is not trial and sampler.is_untried(seen.candidate):
        sampler.tell(seen.candidate, told_scores(seen, objective), slo_violation(seen, objective))
    return sampler.learn(trial)
