"""The winner's proof as it goes: who loses it, who comes next, and what the budget allows. Launches are made up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from advisor.progress import Silent
from advisor.records import Candidate, Decision, GateResult, Objective, Outcome
from advisor.request import TuneRequest
from advisor.search.budget import Budget
from advisor.study.proof import prove
from advisor.verdict.confirm import confirm
from tests.study_help import trial

THROUGHPUT = Objective()
BEST, SECOND, THIRD = ({"--a": number} for number in (1, 2, 3))
GAINS = {Candidate(settings).key: value for settings, value in ((BEST, 130.0), (SECOND, 120.0), (THIRD, 110.0))}


class Notes(Silent):
    def __init__(self):
        self.notes: list[str] = []

    def note(self, text):
        self.notes.append(text)


class Launches:
    """Launches of a minute each; candidates in `broken` die in their soak."""

    def __init__(self, folder: Path, broken=(), gains=GAINS):
        self.folder, self.broken, self.gains = folder, broken, gains
        self.trials = [trial(0, {}, 100.0, "baseline")]
        self.trials += [trial(n, {"--a": n}, gains[Candidate({"--a": n}).key]) for n in (1, 2, 3)]

    def done(self):
        return self.trials

    def __call__(self, phase, candidate, number=0):
        dies = phase == "soak" and candidate.settings in self.broken
        value = None if dies else self.gains.get(candidate.key, 100.0) + number / 10
        outcome = Outcome.CRASHED if dies else Outcome.OK
        round = number if phase == "confirm" else None
        made = trial(len(self.trials), candidate.settings, value, phase, outcome, "died" if dies else "", round)
        if phase == "soak":
            (self.folder / "cache-proof").mkdir(exist_ok=True)
            made = dataclasses.replace(made, gate=GateResult(passed=True))
        self.trials.append(made)
        return made

    def made(self):
        return [(item.phase, item.candidate.settings.get("--a", 0)) for item in self.trials[4:]]


def proven(launch, budget, notes=None):
    def judge():
        return confirm(lambda *step: launch("confirm", *step), launch.done, THROUGHPUT, budget)

    request = TuneRequest("m", "cpu", None, budget, "python")
    return prove(judge, request, launch, notes or Notes())


def rounds(*arms):
    """Three rounds of the default and others, whatever their order."""
    return sorted(("confirm", arm) for arm in (0, *arms) for _ in range(3))


PLENTY = Budget(1e9, soak_s=30.0)


def test_a_winner_that_stands_its_proof_ends_the_study(tmp_path):
    launch = Launches(tmp_path)
    verdict = proven(launch, PLENTY)
    assert verdict.decision is Decision.IMPROVED and verdict.winner.settings == BEST
    assert sorted(launch.made()[:6]) == rounds(1) and launch.made()[6:] == [("soak", 1), ("restart", 1)]
    assert not (tmp_path / "cache-proof").exists()


def test_the_next_best_is_launched_beside_the_default_and_proven(tmp_path):
    launch, notes = Launches(tmp_path, broken=[BEST]), Notes()
    verdict = proven(launch, PLENTY, notes)
    assert verdict.decision is Decision.IMPROVED and verdict.winner.settings == SECOND
    assert launch.made()[6] == ("soak", 1) and sorted(launch.made()[7:13]) == rounds(2)
    assert launch.made()[13:] == [("soak", 2), ("restart", 2)]
    assert any("--a=1 did not stand the soak: crashed: died: it cannot win" in note for note in notes.notes)
    assert "--a=1 gave +30.0% but did not stand the soak" in verdict.reason
    before = list(launch.trials)
    assert proven(launch, PLENTY) == verdict and launch.trials == before


def test_the_first_winner_is_proven_whatever_it_costs(tmp_path):
    launch = Launches(tmp_path)
    verdict = proven(launch, Budget(60.0, soak_s=30.0))
    assert verdict.decision is Decision.IMPROVED and launch.made()[6:] == [("soak", 1), ("restart", 1)]


def test_no_more_than_three_are_tried(tmp_path):
    launch = Launches(tmp_path, broken=[BEST, SECOND, THIRD])
    verdict = proven(launch, PLENTY)
    assert verdict.decision is Decision.KEEP_DEFAULTS and verdict.winner == Candidate()
    assert [step for step in launch.made() if step[0] == "soak"] == [("soak", 1), ("soak", 2), ("soak", 3)]
    assert all(f"--a={n} gave" in verdict.reason for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("second", "minutes", "launches", "words"),
    [
        (120.0, 19, 7, "the budget left no time to launch --a=2 afresh"),
        (120.0, 20, 15, None),
        (129.0, 16, 10, "the budget leaves no time for the proof of --a=2"),  # launched beside the best from the start
        (129.0, 17, 12, None),
    ],
)
def test_the_next_one_is_tried_as_far_as_the_budget_lasts(tmp_path, second, minutes, launches, words):
    launch = Launches(tmp_path, broken=[BEST], gains={**GAINS, Candidate(SECOND).key: second})
    del launch.trials[3]
    verdict = proven(launch, Budget(60.0 * minutes, soak_s=30.0))
    assert len(launch.trials) == 3 + launches
    if words:
        assert verdict.decision is not Decision.IMPROVED and words in verdict.reason
        assert verdict.winner == Candidate() and "--a=1 gave +30.0% but" in verdict.reason
    else:
        assert verdict.decision is Decision.IMPROVED and verdict.winner.settings == SECOND
