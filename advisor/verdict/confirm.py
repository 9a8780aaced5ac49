"""The confirmation: baseline and challenger on fresh launches, in alternating order, on prompts never used in the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.records import Candidate, Objective, Outcome, Trial, Verdict
from advisor.search.scores import ranked
from advisor.verdict.decide import decide

CHALLENGERS = 2  # when the best one fails afresh, the next best gets its turn; more would outlast the budget's reserve

# launch(candidate, round) -> the trial, already in the journal
Launch = Callable[[Candidate, int], Trial]


def confirm(launch: Launch, done: Callable[[], Sequence[Trial]], objective: Objective, rounds: int) -> Verdict:
    """Launch what is missing and decide. Launches that an earlier session made are taken as they are."""
    verdict = decide(done(), None, objective, rounds)
    for trial in ranked(done(), objective)[:CHALLENGERS]:
        challenger = trial.candidate
        for number, candidate in schedule(challenger, rounds):
            if challenger_failed(done(), challenger):
                break
            if not _measured(done(), candidate, number):
                launch(candidate, number)
        verdict = decide(done(), challenger, objective, rounds)
        if not challenger_failed(done(), challenger):
            break
    return verdict


def schedule(challenger: Candidate, rounds: int) -> list[tuple[int, Candidate]]:
    """(round, candidate) in launch order: which arm goes first changes with every round, so that a drift hits both alike."""
    order = []
    for number in range(rounds):
        pair = [Candidate(), challenger]
        order += [(number, candidate) for candidate in (pair if number % 2 == 0 else pair[::-1])]
    return order


def challenger_failed(trials: Sequence[Trial], challenger: Candidate) -> bool:
    return any(
        trial.phase == "confirm" and trial.candidate.key == challenger.key and not trial.ok
        for trial in trials
        if trial.outcome is not Outcome.INTERRUPTED
    )


def _measured(trials: Sequence[Trial], candidate: Candidate, number: int) -> bool:
    return any(
        trial.phase == "confirm" and trial.round == number and trial.candidate.key == candidate.key
        for trial in trials
        if trial.outcome is not Outcome.INTERRUPTED
    )


def seeds(phase: str, samples: int, number: int = 0) -> tuple[int, ...]:
    """Seeds of a launch: the same for every candidate of the search, others for each round of the confirmation."""
    first = 0 if phase != "confirm" else 1000 * (number + 1)
    return tuple(range(first, first + samples))
