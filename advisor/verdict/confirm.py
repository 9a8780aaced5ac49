"""The confirmation: baseline and finalists on fresh launches, in rotating order, on prompts never used in the search.

It goes on until every finalist is decided, the budget ends, or the largest number of rounds is reached. A pair is two launches of
one round, and a round is launched without anything else in between: whoever joins later, or on another day, gets rounds with new
launches of the baseline. Where no finalist is left, the baseline alone is launched, for the noise floor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from advisor.errors import LaunchesFailed
from advisor.records import Candidate, Decision, Objective, Outcome, Trial, Verdict
from advisor.search.budget import Budget, typical_cost_s
from advisor.search.common_failure import failures_in_a_row
from advisor.verdict import noise_floor
from advisor.verdict.decide import MIN_GAIN, Standing, decide, standings
from advisor.verdict.disturbed import mostly_disturbed
from advisor.verdict.finalists import choose
from advisor.verdict.fresh import BASELINE, fresh, launched, tried
from advisor.verdict.proof import loss
from advisor.verdict.quality import TOLERANCE

DEFAULT_FAILURES = 3  # fresh launches of the default in a row, for one cause
PROOF_SEEDS = {"soak": 100_000, "restart": 200_000, "quality": 300_000}

# launch(candidate, round) -> the trial, already in the journal
Launch = Callable[[Candidate, int], Trial]
Step = tuple[Candidate, int]


def confirm(
    launch: Launch,
    done: Callable[[], Sequence[Trial]],
    objective: Objective,
    budget: Budget,
    since: int = 0,
    tolerance: float = TOLERANCE,
    note: Callable[[str], None] = lambda _text: None,
) -> Verdict:
    """Launch what is missing and decide. Launches that an earlier session made are taken as they are.

    Raises LaunchesFailed where one cause fails the default's fresh launches in a row: nothing can be compared with it then.
    `since`: number of the first trial of this sitting (sitting.py); `tolerance`: of the quality command's score.
    """
    _launch_all(lambda: next_launch(done(), objective, budget, since, tolerance), launch, done)
    if next_for_noise(done(), objective, budget, since):
        note("no candidate is left to confirm: the default alone is launched afresh, to tell what launches differ by")
    _launch_all(lambda: next_for_noise(done(), objective, budget, since), launch, done)
    verdict = decide(done(), objective, budget.confirm_rounds, budget.confirm_most, tolerance)
    if verdict.noise is not None:
        return verdict
    return dataclasses.replace(verdict, no_noise=noise_floor.why_none(done(), objective, budget))


def _launch_all(due: Callable[[], Step | None], launch: Launch, done: Callable[[], Sequence[Trial]]) -> None:
    while step := due():
        launch(*step)
        if step[0].is_baseline:
            check_default(done())


def check_default(trials: Sequence[Trial]) -> None:
    """Raises LaunchesFailed where one cause failed its last fresh launches in a row."""
    own = [trial for trial in _whole(trials) if trial.phase == "confirm" and trial.candidate.is_baseline]
    row = failures_in_a_row(own)
    if len(row) >= DEFAULT_FAILURES:
        raise LaunchesFailed(
            f"the default failed in {len(row)} fresh launches in a row: {row[0].outcome.value}: {row[0].reason}",
            f"the log of one of them: {row[0].folder}/server.log in the study's folder; "
            "what was measured is kept, and the same command goes on when the cause is fixed",
        )


def next_launch(
    trials: Sequence[Trial], objective: Objective, budget: Budget, since: int = 0, tolerance: float = TOLERANCE
) -> Step | None:
    """The candidate and round to launch now, or None when a verdict is due.

    It looks at the journal alone, so that a study that is continued at once goes on as it would have without the break.
    """
    wanted = choose(trials, objective, tolerance=tolerance)
    finalists = _affordable(wanted, trials, budget, objective, since, tolerance)
    behind = [item for item in finalists if len(tried(trials, item)) < budget.confirm_rounds]
    if behind:
        return _round(trials, behind, since)[0]
    found = standings(trials, objective, budget.confirm_rounds, budget.confirm_most, tolerance=tolerance)
    kept = {item.key for item in finalists}
    open_ones = [
        item
        for item in undecided(found) or _doubtful(found, trials)
        if item.key in kept and len(tried(trials, item)) < budget.confirm_most
    ]
    if not open_ones:
        return None
    further = _round(trials, open_ones, since)
    affordable = budget.left_s(trials) - budget.proof_s(trials, objective) >= len(further) * typical_cost_s(trials)
    return further[0] if affordable else None


def next_for_noise(trials: Sequence[Trial], objective: Objective, budget: Budget, since: int = 0) -> Step | None:
    """The next launch of the baseline alone, where `next_launch` has none and what launches differ by is not known yet."""
    due = noise_floor.is_due(trials, objective, budget)
    return next_in_rounds(trials, [], noise_floor.wanted(budget), since) if due else None


def next_in_rounds(
    trials: Sequence[Trial], finalists: Sequence[Candidate], rounds: int, since: int = 0, first: int = 0
) -> Step | None:
    """The next launch of finalists that are settled, until each has so many rounds; None when they have. None given: the
    baseline alone.

    `first`: number of the very first round, which decides its seeds and who begins.
    """
    behind = [item for item in finalists if len(tried(trials, item)) < rounds]
    if not finalists and len(fresh(trials, BASELINE)) >= rounds:
        return None
    return _round(trials, behind, since, first)[0] if behind or not finalists else None


def undecided(found: Sequence[Standing]) -> list[Candidate]:
    """Finalists whose further launches could still change the verdict.

    Once one is improved, only a simpler one as good as it, within the noise, is worth more launches.
    """
    open_ones = [item for item in found if item.decision is None]
    won = [item for item in found if item.decision is Decision.IMPROVED]
    if not won:
        return [item.candidate for item in open_ones]
    best = max(won, key=lambda item: item.gain)
    return [
        item.candidate
        for item in open_ones
        if item.candidate.overrides < best.candidate.overrides and item.gain >= best.gain - MIN_GAIN
    ]


def _doubtful(found: Sequence[Standing], trials: Sequence[Trial]) -> list[Candidate]:
    """A winner on mostly disturbed launches is none: further ones may be quiet."""
    won = [item for item in found if item.decision is Decision.IMPROVED]
    best = max(won, key=lambda item: item.gain, default=None)
    return [best.candidate] if best and mostly_disturbed(best.candidate, trials) else []


def order(number: int, finalists: Sequence[Candidate]) -> list[Candidate]:
    """Who is launched after whom: it rotates with every round, so that a drift hits all alike."""
    arms = [BASELINE, *finalists]
    turn = number % len(arms)
    return arms[turn:] + arms[:turn]


def seeds(phase: str, samples: int, number: int = 0) -> tuple[int, ...]:
    """Seeds of a launch: the same for every candidate of the search, others for each round of the confirmation and the proof."""
    first = 1000 * (number + 1) if phase == "confirm" else PROOF_SEEDS.get(phase, 0)
    return tuple(range(first, first + samples))


def _affordable(
    finalists: Sequence[Candidate],
    trials: Sequence[Trial],
    budget: Budget,
    objective: Objective,
    since: int,
    tolerance: float,
) -> list[Candidate]:
    """The first always, further ones as far as their first rounds fit into the budget; one that was begun is kept.

    Who takes the place of a winner that lost its proof, with the budget mostly used up, has to fit too.
    """
    begun = {item.key for item in launched(trials)}
    free = not any(loss(item, trials, tolerance) for item in launched(trials))
    kept: list[Candidate] = []
    for finalist in finalists:
        missing = _missing(trials, [*kept, finalist], budget.confirm_rounds, since)
        fits = missing * typical_cost_s(trials) <= budget.left_s(trials) - budget.proof_s(trials, objective)
        if (free and not kept) or finalist.key in begun or fits:
            kept.append(finalist)
    return kept


def _round(trials: Sequence[Trial], finalists: Sequence[Candidate], since: int, first: int = 0) -> list[Step]:
    """What the round that goes on still lacks, or a new round where it lacks nothing."""
    number = _going_on(trials, since)
    if number is not None:
        lacking = [(arm, number) for arm in order(number, finalists) if number not in fresh(trials, arm)]
        if lacking:
            return lacking
    new = 1 + max((trial.round for trial in _whole(trials) if trial.round is not None), default=first - 1)
    return [(arm, new) for arm in order(new, finalists)]


def _going_on(trials: Sequence[Trial], since: int) -> int | None:
    """The round of the very last launch, if it was begun in this sitting: after anything else a new one begins."""
    whole = _whole(trials)
    number = whole[-1].round if whole else None
    if number is None:
        return None
    first = next(trial for trial in whole if trial.round == number)
    return number if first.number >= since else None


def _whole(trials: Sequence[Trial]) -> list[Trial]:
    """Without what a person stopped."""
    return [trial for trial in trials if trial.outcome is not Outcome.INTERRUPTED]


def _missing(trials: Sequence[Trial], finalists: Sequence[Candidate], rounds: int, since: int) -> int:
    """Launches until each finalist has its first rounds, those of the baseline included."""
    lacking = {item.key: max(0, rounds - len(tried(trials, item))) for item in finalists}
    arms = [item for item in finalists if lacking[item.key]]
    if not arms:
        return 0
    number = _going_on(trials, since)
    here = {arm.key for arm in (BASELINE, *arms) if number in fresh(trials, arm)}
    ahead = len(here)  # launches that have no partner yet
    if BASELINE.key in here:
        ahead = 1 if len(here) <= len(arms) else 0
    return sum(lacking.values()) + max(lacking.values()) - ahead
