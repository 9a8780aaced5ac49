"""The search: choose, launch, tell, until nothing more is expected or the budget or the space is used up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from advisor.records import Candidate, Objective, Outcome, Rejection, Trial
from advisor.search.budget import Budget
from advisor.search.choice import Outlook
from advisor.search.common_failure import check_common_failure
from advisor.search.effects import Point
from advisor.search.sampler import Sampler
from advisor.search.scores import evidence, slo_violation, told_scores
from advisor.search.untried import NO_TIME, NOT_EXPECTED, short

_ASKED = 8  # proposals of Optuna that are weighed, where the space is too large to be known whole
_SECOND_OPINION = 4  # the same where nothing is expected any more
_TOLD = ("baseline", "search")
Looker = Callable[[Sequence[Trial]], Outlook]


def search(
    launch: Callable[[Candidate], Trial],
    sampler: Sampler,
    budget: Budget,
    objective: Objective,
    done: Callable[[], Sequence[Trial]],
    note: Callable[[str], None] = lambda _text: None,
    retry_failed: bool = False,
    known: Sequence[Point] = (),
    exhaust: bool = False,
) -> str:
    """Launch candidates until a reason to stop, which is returned. `done()` gives all trials of the study so far.

    `note` is told what failures teach, and which candidates are not launched and why. `retry_failed`: what failed in an earlier
    session counts as untried. `known`: figures of elsewhere. `exhaust`: go on when nothing more is expected. Raises
    LaunchesFailed when one cause fails several times in a row (advisor/search/common_failure.py).
    """
    forgotten = {trial.number for trial in done() if retry_failed and trial.phase == "search" and not trial.ok}
    look = _looker(sampler, objective, known)
    _teach_all(sampler, [trial for trial in done() if trial.number not in forgotten], objective)
    while True:
        trials = [trial for trial in done() if trial.number not in forgotten]
        outlook = look(trials)
        if not exhaust and nothing_expected(sampler, outlook, look, trials):
            _leave(sampler, NOT_EXPECTED, look, trials, note)
            return f"no untried candidate is expected to gain more than launches differ by ({outlook.floor:.1%})"
        before = len(sampler.skipped)
        if sampler.complete and sampler.skip_foretold():
            _tell_skipped(sampler, before, note)
            return sampler.nothing_left  # and not whatever the budget would say to one more
        reason = budget.stop_reason(done(), objective, outlook.least_s(sampler.untried))
        if reason:
            _leave(sampler, short(reason), look, trials, note)
            return reason
        candidate = _next(sampler, outlook, budget.search_s(done(), objective))
        _tell_skipped(sampler, before, note)
        if candidate is None:
            return sampler.nothing_left
        trial = launch(candidate)
        if trial.outcome is Outcome.INTERRUPTED:  # cut off by the end of the budget, which says nothing of the candidate
            _leave(sampler, NO_TIME, look, done(), note)
            return budget.stop_reason(done(), objective, math.inf) or ""
        for line in teach(sampler, trial, objective):
            note(line)
        check_common_failure([item for item in done() if item.phase == "search"])


def recall(
    sampler: Sampler, budget: Budget, objective: Objective, trials: Sequence[Trial], known: Sequence[Point] = ()
) -> str:
    """Why candidates were not launched in a study that is searched no more: kept with the rejections as when it ended.

    Returns why that was, empty where it is not known any more.
    """
    trials = [trial for trial in trials if trial.phase in _TOLD]
    look, searched = _looker(sampler, objective, known), _searched(trials)
    _teach_all(sampler, searched, objective)
    outlook = look(searched)
    if nothing_expected(sampler, outlook, look, searched):
        _leave(sampler, NOT_EXPECTED, look, trials)
        return NOT_EXPECTED
    if sampler.complete and sampler.skip_foretold():
        return sampler.nothing_left
    if reason := budget.stop_reason(trials, objective, outlook.least_s(sampler.untried)):
        _leave(sampler, short(reason), look, trials)
    return reason or ""


def nothing_expected(sampler: Sampler, outlook: Outlook, look: Looker, trials: Sequence[Trial]) -> bool:
    """Whether no launch is worth its seconds, whatever the budget: for the second time, since a model of so few trials errs.

    The journal alone decides it, so that a study that ended so does not go on when it is asked for again.
    """
    untried, searched = sampler.untried, _searched(trials)
    if not untried or len(searched) < 2 or outlook.best(untried, sampler.designed, math.inf):
        return False
    if outlook.simplest(sampler.simpler_than_best(), math.inf):
        return False
    last = searched[-1].candidate
    return look(searched[:-1]).best([*untried, last], [*sampler.designed, last], math.inf) is None


def _next(sampler: Sampler, outlook: Outlook, seconds: float) -> Candidate | None:
    """The candidate to launch; None where every distinct one was tried, is taken to fail, or costs more than is left."""
    while True:
        if not sampler.complete and not any(map(outlook.gains.unseen, sampler.designed)):
            sampler.asked(_ASKED)  # gets them known
        candidate = (
            outlook.best(sampler.untried, sampler.designed, seconds)
            or outlook.simplest(sampler.simpler_than_best(), seconds)
            or outlook.likeliest(sampler.untried, sampler.asked(_SECOND_OPINION), seconds)
        )
        if candidate is None or sampler.take(candidate):
            return candidate


def _leave(
    sampler: Sampler,
    reason: str,
    look: Looker,
    trials: Sequence[Trial],
    note: Callable[[str], None] = lambda _text: None,
) -> None:
    """Say and keep what is not launched and why, the most promising first. A launch that came to no end was one."""
    begun = {trial.candidate.key for trial in trials if trial.outcome is Outcome.INTERRUPTED}
    left = [candidate for candidate in sampler.untried if candidate.key not in begun]
    ordered = look(_searched(trials)).ordered(left)
    if not ordered:
        return
    sampler.leave([candidate for candidate, _ in ordered], reason)
    (first, gain), count = ordered[0], len(ordered)
    many = f"{count} candidate{'s' if count > 1 else ''}"
    more = "" if sampler.complete else " and all that Optuna would propose"
    note(f"not launched: {many}{more}: {reason}; most promising: {first.label}, expected gain {gain:.1%}")


def _looker(sampler: Sampler, objective: Objective, known: Sequence[Point]) -> Looker:
    """What is expected after some trials."""
    return lambda trials: Outlook(trials, objective, sampler.resolved, known)


def _searched(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.phase in _TOLD and trial.outcome is not Outcome.INTERRUPTED]


def _teach_all(sampler: Sampler, trials: Sequence[Trial], objective: Objective) -> None:
    for trial in _searched(trials):
        teach(sampler, trial, objective)


def _tell_skipped(sampler: Sampler, before: int, note: Callable[[str], None]) -> None:
    for line in skipped_lines(sampler.skipped[before:]):
        note(line)


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
