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
        ((4, 8, 32), "concurrency", 1.0),  # nobody looked further
        ((-4, -2, -1), "concurrency", 1.0),
        ((), "concurrency", 1.0),
    ],
)
def test_what_a_search_leaves_open(loads, kind, ratio):
    assert left_open(points(*loads), kind) == pytest.approx(math.log(ratio))


def launches(metric, default, other, rounds=3):
    """Each of an arm's launches found the same load: (met, the next that was not)."""
    made = []
    for number in range(rounds):
        for settings, (met, missed) in (({}, default), (X.settings, other)):
            one = trial(len(made), settings, 100.0, "confirm", round=number)
            samples = tuple(dataclasses.replace(s, load=float(met), slo_within={SLO[0].label: 1.0}) for s in one.samples)
            made.append(dataclasses.replace(one, samples=samples, loads=points(met, -missed)))
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
