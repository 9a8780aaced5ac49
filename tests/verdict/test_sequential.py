"""Looking after every round: the error of all looks together, giving up, and what the interval covers."""

import math
import random

import pytest

from advisor.records import Decision
from advisor.verdict.sequential import ERROR, Looks, chance, interval, judge, launches_needed
from advisor.verdict.statistics import Comparison, compare


@pytest.mark.parametrize(("first", "last"), [(3, 12), (3, 3), (5, 12), (20, 12)])
def test_the_looks_share_one_error(first, last):
    looks = Looks(first, last)
    assert sum(looks.tail(n) for n in range(first, max(first, last) + 1)) == pytest.approx(ERROR)
    assert Looks(first, last, 3).tail(first) == pytest.approx(looks.tail(first) / 3)
    assert looks.tail(max(first, last) + 5) > 0


def study(rng, gain, deviations, looks):
    """Looks after each round at arms of which each has its own launch noise; yields the comparisons of each look."""
    arms = [{} for _ in deviations]
    for number in range(looks.last):
        shared = rng.gauss(0, 0.02) + 0.01 * number  # prompts, and a drift
        for arm, deviation in zip(arms, deviations, strict=True):
            arm[number] = 100 * math.exp(shared + rng.gauss(0, deviation) + (0 if arm is arms[0] else gain))
        if number + 1 >= looks.first:
            yield [compare(arms[0], arm, [o for o in arms[1:] if o is not arm]) for arm in arms[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("deviations", [(0.01, 0.01), (0.06,) * 4, (0.01, 0.01, 0.01, 0.04), (0.05, 0.01, 0.01)])
def test_looking_often_at_several_arms_rarely_finds_a_gain_that_is_not_there(deviations):
    """Every look of every arm counts, none is given up: the worst case. 400 studies; the bound is three errors off 2.5%."""
    rng = random.Random(1)
    looks = Looks(3, 12, len(deviations) - 1)
    wrong = 0
    for _ in range(400):
        found = [item for look in study(rng, 0.0, deviations, looks) for item in look]
        wrong += any(interval(item, looks).low > 1 for item in found)
    assert wrong / 400 <= 0.048


def test_looking_often_without_sharing_the_error_would_fail_that():
    rng = random.Random(1)
    looks = Looks(3, 12)
    naive = sum(
        any(item.interval(ERROR).low > 1 for look in study(rng, 0.0, (0.03, 0.03), looks) for item in look)
        for _ in range(400)
    )
    assert naive / 400 > 0.05


def test_the_interval_covers_the_true_gain_whenever_it_is_read():
    rng = random.Random(2)
    looks = Looks(3, 12)
    missed = 0
    for _ in range(300):
        for (item,) in study(rng, math.log(1.05), (0.02, 0.02), looks):
            seen = interval(item, looks)
            if not seen.low <= 1.05 <= seen.high:
                missed += 1
                break
    assert missed / 300 <= 0.05


def found(gain, deviation=0.014, launches=3):
    return Comparison(launches, math.log(1 + gain), deviation, launches - 1)


def test_giving_up_follows_the_chance_that_is_left():
    looks = Looks(3, 12)
    chances = [chance(found(gain), looks) for gain in (-0.02, 0.0, 0.01, 0.02, 0.05)]
    assert chances == sorted(chances) and chances[1] < 0.01 and chances[-1] > 0.99
    assert chance(found(0.05, launches=12), looks) == 0.0
    assert judge(found(0.0), looks, ended=False).decision is Decision.KEEP_DEFAULTS
    assert judge(found(0.04, 0.03), looks, ended=False).decision is None
    assert judge(found(0.04, 0.03), looks, ended=True).decision is Decision.INCONCLUSIVE


def test_noise_that_no_launches_overcome_is_named():
    looks = Looks(3, 12)
    judged = judge(found(0.03, 0.30), looks, ended=False)
    assert judged.decision is Decision.KEEP_DEFAULTS and "differ by (21.2%)" in judged.reason


def test_the_launches_that_would_tell():
    looks = Looks(3, 12)
    few, many = launches_needed(found(0.10, 0.03), looks), launches_needed(found(0.05, 0.08), looks)
    assert 3 <= few < 8 < many < 40 and launches_needed(found(-0.1), looks) is None
