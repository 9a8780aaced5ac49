"""Loads that launches find for themselves are known to 5% at best: no verdict and no claim may rest on less."""

from __future__ import annotations

import dataclasses
import math

import pytest

from advisor.measure.load_search import left_open
from advisor.records import Candidate, Decision, LoadPoint, Objective, SloLimit
from advisor.verdict.decide import decide
from tests.study_help import trial

X = Candidate({"x": "1"})
SLO = (SloLimit("ttft_ms", 500.0),)


def points(*loads):
    return tuple(LoadPoint(float(abs(load)), load > 0, 1.0) for load in loads)


@pytest.mark.parametrize(
    ("loads", "kind", "ratio"),
    [
        ((4, 8, -32, 16, -20, -17), "concurrency", 1.0),  # 16 and not 17: nothing lies between
        ((10, 40, -160, -80, -57, -48, -44, -42), "concurrency", 41 / 40),
        ((10, 40, -160, -80, -57, -48, -44, -42), "rate", 42 / 40),
        ((4, -16), "concurrency", 15 / 4),  # the search was cut off
        ((4, 8, 32), "concurrency", 4096 / 32),  # a full server, or the last load: nobody looked further
        ((4, 8, 32), "rate", 4.0),
        ((64, 128, 512, 2048, 4096), "concurrency", 1.0),  # no more can be sent
        ((-4, -2, -1), "concurrency", 1.0),
        ((), "concurrency", 1.0),
    ],
)
def test_what_a_search_leaves_open(loads, kind, ratio):
    assert left_open(points(*loads), kind) == pytest.approx(math.log(ratio))


def launches(metric, default, other, rounds=3):
    """Each of an arm's launches found the same load: (met, the next that was not, None where none was)."""
    made = []
    for number in range(rounds):
        for settings, (met, missed) in (({}, default), (X.settings, other)):
            one = trial(len(made), settings, 100.0, "confirm", round=number)
            samples = tuple(dataclasses.replace(s, load=float(met), slo_within={SLO[0].label: 1.0}) for s in one.samples)
            made.append(dataclasses.replace(one, samples=samples, loads=points(met, *([-missed] if missed else []))))
    return decide(made, Objective(metric, slo=SLO, find_load=metric.removeprefix("max_")))


def test_launches_that_agree_exactly_do_not_make_a_search_exact():
    verdict = launches("max_rate", (40.0, 42.0), (40.0, 42.0))
    assert verdict.noise == 0 and verdict.smallest_gain > 0.05
    assert verdict.ratio.low < 1 / 1.05 and verdict.ratio.high > 1.05


def test_a_gain_within_one_step_of_the_search_is_none():
    assert launches("max_rate", (40.0, 42.0), (42.0, 44.1)).decision is not Decision.IMPROVED
    assert launches("max_rate", (40.0, 42.0), (50.0, 52.5)).decision is Decision.IMPROVED


def test_a_step_of_one_request_is_exact_where_the_next_one_failed():
    verdict = launches("max_concurrency", (12, 13), (13, 14))
    assert verdict.decision is Decision.IMPROVED and verdict.ratio.value == pytest.approx(13 / 12)
    assert launches("max_concurrency", (40, 42), (41, 43)).decision is not Decision.IMPROVED


def test_nothing_bears_more_than_a_default_whose_limit_was_not_found():
    """Noise decides where a search of a full server ends: one stops at 256, another at 1024, and neither met a limit."""
    verdict = launches("max_concurrency", (256, None), (1024, None))
    assert verdict.decision is Decision.INCONCLUSIVE and verdict.ratio.low < 1
    assert "the default met the SLO at every load tried" in verdict.reason
    assert verdict.ratios["max_concurrency"].low < 1  # the figure beside the others says no more
    assert launches("max_rate", (8.0, None), (16.0, 17.0)).decision is Decision.INCONCLUSIVE


def test_a_candidate_without_a_limit_beats_a_default_that_has_one():
    verdict = launches("max_concurrency", (64, 66), (256, None))
    assert verdict.decision is Decision.IMPROVED and 3.5 < verdict.ratio.low < 4 < 60 < verdict.ratio.high
    assert "every load tried" not in verdict.reason


def test_each_arm_leaves_open_what_lies_above_it():
    """The default's gap makes the gain smaller, the candidate's makes it larger."""
    coarse, fine = launches("max_rate", (40.0, 50.0), (60.0, 61.0)), launches("max_rate", (40.0, 41.0), (60.0, 75.0))
    assert coarse.ratio.low < 60 / 50 < fine.ratio.low
    assert coarse.ratio.high < 62.5 / 40 < 75 / 40 < fine.ratio.high
    assert coarse.smallest_gain > 0.25 > fine.smallest_gain


def test_two_that_reach_what_can_be_sent_are_equal():
    assert launches("max_concurrency", (4096, None), (4096, None)).decision is Decision.KEEP_DEFAULTS
