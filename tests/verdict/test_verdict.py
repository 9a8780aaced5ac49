"""Intervals, the decision, and the order of the fresh launches."""

import random

import pytest

from advisor.records import Candidate, Decision, Objective, Outcome
from advisor.verdict.confirm import confirm, schedule, seeds
from advisor.verdict.decide import decide
from advisor.verdict.statistics import mean_interval, paired_ratio, relative_deviation
from tests.study_help import trial

THROUGHPUT = Objective()
CHALLENGER = Candidate({"--a": 1})


def confirmed(baseline, tuned, objective_value="tok_s"):
    trials = []
    for number, (a, b) in enumerate(zip(baseline, tuned, strict=True)):
        trials.append(trial(10 + 2 * number, {}, a, phase="confirm", round=number))
        trials.append(trial(11 + 2 * number, CHALLENGER.settings, b, phase="confirm", round=number))
    return trials


def test_intervals_against_known_values():
    interval = mean_interval([9.0, 10.0, 11.0])  # t(0.975, 2) = 4.3027, s = 1
    assert interval.value == 10.0 and interval.high - 10.0 == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert mean_interval([1.0]) is None and relative_deviation([1.0]) is None
    ratio = paired_ratio([100.0, 200.0, 400.0], [110.0, 220.0, 440.0], maximise=True)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.1, 1.1, 1.1))
    assert paired_ratio([100.0, 100.0], [80.0, 80.0], maximise=False).value == pytest.approx(1.25)


def test_pairing_takes_out_what_both_share():
    drifting = [100.0, 130.0, 170.0]
    ratio = paired_ratio(drifting, [1.05 * value for value in drifting], maximise=True)
    assert ratio.low == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("baseline", "tuned", "decision", "part"),
    [
        ([100, 101, 99], [120, 121, 119], Decision.IMPROVED, "+20"),
        ([100, 101, 99], [101, 101.5, 100], Decision.KEEP_DEFAULTS, "not worth an override"),
        ([100, 101, 99], [80, 81, 79], Decision.KEEP_DEFAULTS, "-20"),
        ([100, 130, 90], [120, 110, 125], Decision.INCONCLUSIVE, "holds zero gain"),
        ([100, 101], [120, 121], Decision.INCONCLUSIVE, "2 of 3 pairs"),
    ],
)
def test_decisions(baseline, tuned, decision, part):
    verdict = decide(confirmed(baseline, tuned), CHALLENGER, THROUGHPUT)
    assert verdict.decision is decision and part in verdict.reason
    assert verdict.winner == (CHALLENGER if decision is Decision.IMPROVED else Candidate())


def test_nothing_to_confirm_keeps_the_defaults():
    tried = trial(1, {"--a": 1}, outcome=Outcome.CRASHED)
    assert decide([tried], None, THROUGHPUT).decision is Decision.KEEP_DEFAULTS


def test_nothing_tried_is_no_reason_to_keep_the_defaults():
    for done in ([], [trial(0, {}, 100.0, phase="baseline")], [trial(1, {"--a": 1}, outcome=Outcome.INTERRUPTED)]):
        verdict = decide(done, None, THROUGHPUT)
        assert verdict.decision is Decision.INCONCLUSIVE and "no other setting was tried" in verdict.reason


def test_a_challenger_that_fails_afresh_cannot_win():
    trials = confirmed([100, 100, 100], [150, 150, 150])
    trials[-1] = trial(
        15, CHALLENGER.settings, phase="confirm", round=2, outcome=Outcome.CRASHED, reason="illegal access"
    )
    verdict = decide(trials, CHALLENGER, THROUGHPUT)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "illegal access" in verdict.reason


def test_equal_arms_are_rarely_called_improved():
    rng = random.Random(0)
    wrong = 0
    for _ in range(2000):
        draw = [[rng.gauss(100, 3) for _ in range(3)] for _ in range(2)]
        wrong += decide(confirmed(*draw), CHALLENGER, THROUGHPUT).decision is Decision.IMPROVED
    assert wrong / 2000 <= 0.04


def test_arms_alternate_and_share_new_seeds():
    order = schedule(CHALLENGER, 3)
    assert [candidate.is_baseline for _, candidate in order] == [True, False, False, True, True, False]
    used = [seeds("confirm", 2, number) for number in range(3)]
    assert len({seed for group in used for seed in group} | set(seeds("search", 2))) == 8
    assert seeds("baseline", 2) == seeds("search", 2)


class Launches:
    """Confirmation launches from a table; candidates in `broken` crash."""

    def __init__(self, searched, broken=()):
        self.done = [trial(0, {}, 100.0, phase="baseline"), *searched]
        self.broken = broken

    def __call__(self, candidate, number):
        crashed = candidate.label in self.broken
        value = None if crashed else 100.0 + number if candidate.is_baseline else 130.0 + number
        outcome = Outcome.CRASHED if crashed else Outcome.OK
        self.done.append(
            trial(len(self.done), candidate.settings, value, "confirm", outcome, "boom" if crashed else "", number)
        )
        return self.done[-1]


def test_confirmation_launches_both_arms_in_every_round():
    launches = Launches([trial(1, {"--a": 1}, 130.0), trial(2, {"--a": 2}, 90.0)])
    verdict = confirm(launches, lambda: launches.done, THROUGHPUT, 3)
    assert verdict.decision is Decision.IMPROVED and verdict.launches == 3
    assert len(launches.done) == 3 + 6


def test_what_was_launched_before_is_not_launched_again():
    launches = Launches([trial(1, {"--a": 1}, 130.0)])
    launches(Candidate(), 0)
    launches(CHALLENGER, 0)
    confirm(launches, lambda: launches.done, THROUGHPUT, 3)
    assert len(launches.done) == 2 + 6


def test_the_next_best_gets_its_turn_when_the_best_fails_afresh():
    launches = Launches([trial(1, {"--a": 1}, 150.0), trial(2, {"--a": 2}, 120.0)], broken=["--a=1"])
    verdict = confirm(launches, lambda: launches.done, THROUGHPUT, 3)
    assert verdict.decision is Decision.IMPROVED and verdict.winner.settings == {"--a": 2}


def test_the_simplest_of_equals_is_confirmed():
    launches = Launches([trial(1, {"--a": 1, "--b": 1}, 131.0), trial(2, {"--a": 3}, 130.0)])
    assert confirm(launches, lambda: launches.done, THROUGHPUT, 3).challenger.settings == {"--a": 3}
