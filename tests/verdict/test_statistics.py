"""Intervals over launches: known values, pairing, the noise of several arms together."""

import math
import random

import pytest

from advisor.verdict.statistics import (
    LEAST_DEVIATION,
    compare,
    launch_deviation,
    mean_interval,
    relative_deviation,
    same_launch_deviation,
)


def rounds(*values):
    return dict(enumerate(values))


def test_a_mean_against_known_values():
    interval = mean_interval([9.0, 10.0, 11.0])  # t(0.975, 2) = 4.3027, s = 1
    assert interval.value == 10.0 and interval.high - 10.0 == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert mean_interval([1.0]) is None and relative_deviation([1.0]) is None and relative_deviation([0.0, 0.0]) is None


def test_two_arms_give_the_paired_t_interval():
    baseline, arm = [100.0, 104.0, 97.0, 101.0], [108.0, 107.0, 104.0, 111.0]
    logs = [math.log(b / a) for a, b in zip(baseline, arm, strict=True)]
    mean = sum(logs) / 4
    deviation = math.sqrt(sum((item - mean) ** 2 for item in logs) / 3)
    found = compare(rounds(*baseline), rounds(*arm))
    assert (found.gain, found.deviation, found.degrees) == (pytest.approx(mean), pytest.approx(deviation), 3)
    half = 3.18245 * deviation / 2  # t(0.975, 3)
    assert found.interval(0.025).high == pytest.approx(math.exp(mean + half), rel=1e-5)


def test_a_latency_counts_the_other_way():
    assert compare(rounds(100, 100), rounds(80, 80), maximise=False).ratio == pytest.approx(1.25)


def test_pairing_takes_out_what_both_share():
    drifting = [100.0, 130.0, 170.0]
    found = compare(rounds(*drifting), rounds(*(1.05 * value for value in drifting)))
    assert found.ratio == pytest.approx(1.05) and found.deviation == pytest.approx(math.sqrt(2) * LEAST_DEVIATION)


def test_only_rounds_that_both_have_are_pairs():
    assert compare({0: 100.0}, {1: 110.0}) is None and compare({0: 100.0, 1: 100.0}, {1: 110.0}) is None
    assert compare({0: 100.0, 1: 100.0, 2: 90.0}, {1: 110.0, 2: 99.0, 3: 50.0}).launches == 2


def test_the_noise_is_recovered_from_arms_that_lack_rounds():
    rng = random.Random(0)
    arms = []
    for arm, length in ((0, 400), (1, 400), (2, 60), (3, 200)):
        arms.append({n: 100 * math.exp(arm / 10 + math.sin(n) + rng.gauss(0, 0.03)) for n in range(length)})
    deviation, degrees = launch_deviation(arms)
    assert deviation == pytest.approx(0.03, rel=0.08) and degrees == (400 + 400 + 60 + 200) - (400 + 4 - 1)
    assert launch_deviation([{0: 1.0}, {0: 2.0}]) == (0.0, 0)


def test_an_arm_noisier_than_the_rest_is_judged_by_its_own_noise():
    quiet = [rounds(*(100 + item for item in (0, 0.1, -0.1, 0))) for _ in range(3)]
    noisy = rounds(130, 90, 120, 85)
    own = compare(quiet[0], noisy)
    assert compare(quiet[0], noisy, quiet[1:]).deviation >= own.deviation
    assert compare(quiet[0], quiet[1], [noisy]).deviation > compare(quiet[0], quiet[1]).deviation


def test_seeds_of_one_launch_bound_its_noise_from_below():
    assert same_launch_deviation([{0: 100.0, 1: 110.0}, {0: 120.0, 1: 132.0}]) == pytest.approx(0.0, abs=1e-9)
    assert same_launch_deviation([{0: 100.0, 1: 110.0}, {0: 110.0, 1: 100.0}]) > 0.05
    assert same_launch_deviation([{0: 100.0}, {0: 90.0}]) == 0.0
