"""The confirmation: baseline and finalists on fresh launches, in rotating order, on prompts never used in the search.

It goes on until every finalist is decided, the budget ends, or the largest number of rounds is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.records import Candidate, Decision, Objective, Trial, Verdict
from advisor.search.budget import Budget, typical_cost_s
from advisor.verdict.decide import MIN_GAIN, Standing, decide, standings
from advisor.verdict.finalists import choose
from advisor.verdict.fresh import BASELINE, fresh, launched

PROOF_SEEDS = {"soak": 100_000, "restart": 200_000, "quality": 300_000}

# launch(candidate, round) -> the trial, already in the journal
Launch = Callable[[Candidate, int], Trial]
Step = tuple[Candidate, int]


def confirm(launch: Launch, done: Callable[[], Sequence[Trial]], objective: Objective, budget: Budget) -> Verdict:
    """Launch what is missing and decide. Launches that an earlier session made are taken as they are."""
    while step := next_launch(done(), objective, budget):
        launch(*step)
    return decide(done(), objective, budget.confirm_rounds, budget.confirm_most)


def next_launch(trials: Sequence[Trial], objective: Objective, budget: Budget) -> Step | None:
    """The candidate and round to launch now, or None when a verdict is due.

    It looks at the journal alone, so that a study that is continued goes on as it would have without the break.
    """
    finalists = _affordable(choose(trials, objective), trials, budget, objective)
    if not finalists:
        return None
    step = _first_missing(trials, finalists, range(budget.confirm_rounds))
    if step:
        return step
    open_ones = undecided(standings(trials, objective, budget.confirm_rounds, budget.confirm_most))
    open_ones = [item for item in open_ones if item.key in {finalist.key for finalist in finalists}]
    further = _rounds_missing(trials, open_ones, range(budget.confirm_rounds, budget.confirm_most))
    if not open_ones or not further:
        return None
    affordable = budget.left_s(trials) - budget.proof_s(trials, objective) >= len(further) * typical_cost_s(trials)
    return further[0] if affordable else None


def undecided(found: Sequence[Standing]) -> list[Candidate]:
    """Finalists whose further launches could still change the verdict.

    Once one is improved, only a simpler one as good as it, within the noise, is worth more launches.
    """
    open_ones = [item for item in found if item.decision is None and item.failure is None]
    won = [item for item in found if item.decision is Decision.IMPROVED]
    if not won:
        return [item.candidate for item in open_ones]
    best = max(won, key=lambda item: item.gain)
    return [
        item.candidate
        for item in open_ones
        if item.candidate.overrides < best.candidate.overrides and item.gain >= best.gain - MIN_GAIN
    ]


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
    finalists: Sequence[Candidate], trials: Sequence[Trial], budget: Budget, objective: Objective
) -> list[Candidate]:
    """The first always, further ones as far as their first rounds fit into the budget; one that was begun is kept."""
    begun = {item.key for item in launched(trials)}
    kept: list[Candidate] = []
    for finalist in finalists:
        missing = len(_missing(trials, [*kept, finalist], range(budget.confirm_rounds)))
        fits = missing * typical_cost_s(trials) <= budget.left_s(trials) - budget.proof_s(trials, objective)
        if not kept or finalist.key in begun or fits:
            kept.append(finalist)
    return kept


def _missing(trials: Sequence[Trial], finalists: Sequence[Candidate], rounds: range) -> list[Step]:
    """Launches not made yet, in order."""
    had = {arm.key: fresh(trials, arm).keys() for arm in (BASELINE, *finalists)}
    return [(arm, number) for number in rounds for arm in order(number, finalists) if number not in had[arm.key]]


def _first_missing(trials: Sequence[Trial], finalists: Sequence[Candidate], rounds: range) -> Step | None:
    return next(iter(_missing(trials, finalists, rounds)), None)


def _rounds_missing(trials: Sequence[Trial], finalists: Sequence[Candidate], rounds: range) -> list[Step]:
    """What is missing of the first round that is not complete."""
    steps = _missing(trials, finalists, rounds)
    return [step for step in steps if step[1] == steps[0][1]]
