"""Which launch comes next where the finalists are settled already."""

from __future__ import annotations

from advisor.records import Candidate, Outcome
from advisor.verdict.confirm import next_in_rounds
from tests.study_help import trial

ARM = Candidate({"--a": 1})
DEFAULT = Candidate()


def launched(*steps):
    return [trial(number, dict(item.settings), 100.0, "confirm", round=at) for number, (item, at) in enumerate(steps)]


def all_of(trials, arms, rounds, since=0, first=0):
    """Every launch until nothing is missing."""
    made = list(trials)
    while step := next_in_rounds(made, arms, rounds, since, first):
        made.append(trial(len(made), dict(step[0].settings), 100.0, "confirm", round=step[1]))
    return [(item.candidate == ARM, item.round) for item in made[len(trials) :]]


def test_the_default_alone():
    assert all_of([], [], 3, first=40) == [(False, 40), (False, 41), (False, 42)]


def test_both_sides_in_turn_each_round_the_other_way_round():
    assert all_of([], [ARM], 2, first=40) == [(False, 40), (True, 40), (True, 41), (False, 41)]


def test_a_round_of_this_sitting_is_finished_first():
    assert all_of(launched((DEFAULT, 40)), [ARM], 1, first=40) == [(True, 40)]


def test_a_round_that_an_earlier_sitting_began_is_launched_anew():
    assert all_of(launched((DEFAULT, 40)), [ARM], 1, since=1, first=40) == [(True, 41), (False, 41)]


def test_what_a_person_stopped_is_launched_again():
    stopped = [trial(0, {}, None, "confirm", Outcome.INTERRUPTED, "stopped", round=40)]
    assert all_of(stopped, [], 1, first=40) == [(False, 40)]


def test_a_failed_launch_is_not_tried_again():
    failed = [trial(0, {}, None, "confirm", Outcome.CRASHED, "died", round=40)]
    assert all_of(failed, [], 1, first=40) == []
