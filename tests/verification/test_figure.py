"""A figure of another day: intervals of two groups of launches, and what they settle."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from advisor.records import Interval
from advisor.serving_profile.values import Figure
from advisor.verdict.statistics import mean_interval
from advisor.verification.figure import Held, Was, judged, launches_needed, ratio, was


def figure_of(values):
    """As the profile writes it."""
    found = mean_interval(values)
    return Figure(mean=found.value, low=max(0.0, found.low), high=found.high)


def test_the_deviation_is_read_back_from_the_interval():
    values = [3301.0, 3272.0, 3269.0]
    before = was(figure_of(values), 3)
    assert before.deviation == pytest.approx(statistics.stdev(values) / statistics.fmean(values), rel=0.02)


def test_a_lower_end_that_was_cut_off_at_zero_does_no_harm():
    values = [1.0, 9.0, 2.0]
    assert was(figure_of(values), 3).deviation == pytest.approx(statistics.stdev(values) / 4.0, rel=0.01)


def test_one_launch_has_no_deviation_of_its_own():
    assert was(Figure(mean=100.0), 1) == Was(100.0, 1)
    # It is taken to vary as the present ones do: wider than if it were known exactly.
    alone, exact = ratio(Was(100.0, 1), [99.0, 101.0, 100.0]), ratio(Was(100.0, 3, 0.0), [99.0, 101.0, 100.0])
    assert alone.high > exact.high and alone.value == pytest.approx(1.0)


def test_welch_against_the_textbook():
    # NIST-like example by hand: means 100 and 103, deviations 1% and 2%, three launches each; df = 2.94 -> 2, t = 4.303.
    now = [103 * (1 - 0.02), 103.0, 103 * (1 + 0.02)]
    found = ratio(Was(100.0, 3, 0.01), now)
    half = 4.3027 * math.sqrt((0.01**2 + 0.02**2) / 3)
    assert math.log(found.high / found.value) == pytest.approx(half, rel=1e-3)
    assert found.value == pytest.approx(1.03)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng, hits, runs = random.Random(1), 0, 2000
    for _ in range(runs):
        old = [rng.gauss(100, 1) for _ in range(3)]
        new = [rng.gauss(103, 2) for _ in range(3)]
        found = ratio(was(figure_of(old), 3), new)
        hits += found.low <= 1.03 <= found.high
    assert hits / runs >= 0.945


@pytest.mark.parametrize(
    ("interval", "held"),
    [
        (Interval(1.0, 0.98, 1.02), Held.HOLDS),
        (Interval(0.97, 0.96, 0.98), Held.HOLDS),  # another figure, surely, and within the tolerance
        (Interval(1.04, 1.02, 1.06), Held.UNCLEAR),
        (Interval(0.99, 0.90, 1.08), Held.UNCLEAR),
        (Interval(0.90, 0.88, 0.92), Held.FAILS),
        (Interval(1.10, 1.06, 1.14), Held.FAILS),  # a profile that is too low is wrong, too
        (None, Held.UNCLEAR),
    ],
)
def test_what_an_interval_settles(interval, held):
    assert judged(interval, 0.05) is held


def test_one_launch_settles_nothing():
    assert ratio(Was(100.0, 3, 0.01), [100.0]) is None


def test_how_many_launches_would_settle_it():
    before, now = Was(100.0, 3, 0.02), [97.0, 103.0, 100.0]
    assert judged(ratio(before, now), 0.05) is Held.UNCLEAR
    needed = launches_needed(before, now, 0.05)
    assert needed is not None and needed > 3
    # At the edge of the tolerance no number of launches decides.
    assert launches_needed(Was(100.0, 3, 0.02), [102.0, 108.0, 105.0], 0.05) is None
