"""What the line of a finished trial is held against."""

from __future__ import annotations

import dataclasses

from advisor.records import Outcome
from advisor.study.launches import compared_with
from tests.study_help import trial


def fresh(number: int, round: int, settings=None, **more):
    return dataclasses.replace(trial(number, settings or {}, 100.0, phase="confirm"), round=round, **more)


BASELINE = trial(0, {}, 100.0, phase="baseline")
SEARCHED = trial(1, {"a": 1}, 110.0)
DONE = [BASELINE, SEARCHED, fresh(2, 0), fresh(3, 0, {"a": 1}), fresh(4, 1, {"a": 1}), fresh(5, 1)]


def test_the_search_is_held_against_the_baseline():
    assert compared_with(SEARCHED, DONE) is BASELINE and compared_with(BASELINE, DONE[:1]) is BASELINE


def test_a_fresh_launch_is_held_against_the_default_of_its_round():
    assert compared_with(DONE[3], DONE[:4]) is DONE[2]


def test_a_round_that_has_no_default_yet_is_held_against_nothing():
    assert compared_with(DONE[4], DONE[:5]) is None
    broken = fresh(2, 0, outcome=Outcome.CRASHED)
    assert compared_with(DONE[3], [BASELINE, SEARCHED, broken, DONE[3]]) is None


def test_the_proof_is_held_against_nothing():
    soak = dataclasses.replace(SEARCHED, phase="soak", round=None)
    assert compared_with(soak, [*DONE, soak]) is None
