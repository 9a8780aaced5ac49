"""Verdicts that rest on disturbed launches."""

from __future__ import annotations

import dataclasses

from advisor.records import Candidate, Decision, Interval, Verdict
from advisor.verdict.disturbed import with_disturbances
from tests.study_help import trial

WINNER = Candidate({"x": "1"})
IMPROVED = Verdict(Decision.IMPROVED, "x=1 gave +8%", "output_tok_s", WINNER, WINNER, Interval(1.08, 1.06, 1.1))


def launches(disturbed: int):
    made = [trial(i, {} if i % 2 else {"x": "1"}, 100.0, phase="confirm", round=i // 2) for i in range(6)]
    for i in range(disturbed):
        samples = tuple(dataclasses.replace(item, taints=("steal 9%: make (pid 7) 0.4",)) for item in made[i].samples)
        made[i] = dataclasses.replace(made[i], samples=samples)
    return made


def test_a_quiet_machine_changes_nothing():
    assert with_disturbances(IMPROVED, launches(0)) is IMPROVED


def test_a_few_disturbed_launches_are_told():
    verdict = with_disturbances(IMPROVED, launches(2))
    assert verdict.decision is Decision.IMPROVED
    assert verdict.reason.endswith("2 of 6 fresh launches were disturbed (steal 9%)")


def test_no_gain_is_claimed_on_mostly_disturbed_launches():
    verdict = with_disturbances(IMPROVED, launches(4))
    assert (verdict.decision, verdict.winner) == (Decision.INCONCLUSIVE, Candidate())
    assert "4 of 6 fresh launches were disturbed (steal 9%): with so many no gain is claimed" in verdict.reason
