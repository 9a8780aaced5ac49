"""What is still to be gained: noise floor, chance of failure, best so far, figures from elsewhere."""

import dataclasses
import math

import pytest

from advisor.records import Candidate, Dropped, Objective, Outcome, SloLimit
from advisor.search.effects import Point
from advisor.search.expected_gain import Gains
from advisor.search.launch_noise import KNOWN, launch_noise
from tests.study_help import sample, trial

THROUGHPUT = Objective()
BASE = trial(0, {}, 1000.0, phase="baseline")
UNSEEN = Candidate({"c": 1})


def gain(trials, *candidates, objective=THROUGHPUT, known=()):
    return Gains(trials, objective, known).of(candidates)


def test_before_anything_was_tried_every_value_is_worth_more_than_noise():
    found = Gains([BASE], THROUGHPUT)
    assert found.floor == pytest.approx(KNOWN) and found.of([UNSEEN])[0] > found.floor
    assert found.unseen(UNSEEN) == {("c", "1")} and not found.unseen(Candidate())


def test_a_pair_of_winners_is_expected_to_win_and_one_of_losers_is_not():
    trials = [BASE, trial(1, {"a": 1}, 1100.0), trial(2, {"b": 1}, 1050.0), trial(3, {"c": 1}, 700.0)]
    good, bad = gain(trials, Candidate({"a": 1, "b": 1}), Candidate({"a": 1, "c": 1}))
    assert good > 0.03 and bad < 0.006


def test_less_is_better_for_a_latency():
    made = [dataclasses.replace(item, samples=(sample(0, 1.0, tpot),)) for item, tpot in ((BASE, 10.0), (trial(1, {"a": 1}), 5.0))]
    slow = dataclasses.replace(trial(2, {"b": 1}), samples=(sample(0, 1.0, 20.0),))
    found = gain([*made, slow], Candidate({"a": 1, "d": 1}), Candidate({"b": 1, "d": 1}), objective=Objective("tpot_ms.p50"))
    assert found[0] > 0.005 and found[1] < 1e-4


def test_what_failed_halves_the_hope_of_what_it_shares():
    fine = [BASE, trial(1, {"a": 1}, 1000.0)]
    died = [*fine, trial(2, {"b": 1}, outcome=Outcome.CRASHED, reason="died")]
    probe = Candidate({"b": 1, "c": 1})
    assert gain(died, probe)[0] == pytest.approx(gain(fine, probe)[0] / 2)
    assert not Gains(died, THROUGHPUT).unseen(Candidate({"b": 1}))  # it was tried


def test_a_value_that_could_not_be_measured_once_is_as_good_as_untried():
    """That says nothing about it (advisor/search/feasibility.py); twice is enough to stop asking."""
    fine, value, probe = [BASE, trial(1, {"a": 1}, 1000.0)], Candidate({"b": 1}), Candidate({"b": 1, "c": 1})
    invalid = [trial(2 + n, {"b": 1, "a": n}, outcome=Outcome.INVALID_MEASUREMENT, reason="too-short") for n in range(3)]
    once, twice, thrice = (Gains([*fine, *invalid[:count]], THROUGHPUT) for count in (1, 2, 3))
    hope = gain(fine, probe)[0]
    assert once.unseen(value) and once.of([probe])[0] == pytest.approx(hope)
    assert not twice.unseen(value) and twice.of([probe])[0] == pytest.approx(hope / 2)
    assert not thrice.unseen(value) and thrice.of([probe])[0] == pytest.approx(hope / 10)


def test_a_candidate_that_breaks_the_slo_is_not_the_best_so_far():
    slo = Objective(slo=(SloLimit("ttft_ms", 500.0),))
    broken = trial(1, {"a": 1}, 2000.0)
    samples = tuple(dataclasses.replace(item, slo_share=0.5, slo_within={"ttft_p99<500ms": 0.5}) for item in broken.samples)
    kept = tuple(dataclasses.replace(item, slo_share=1.0, slo_within={"ttft_p99<500ms": 1.0}) for item in BASE.samples)
    trials = [dataclasses.replace(BASE, samples=kept), dataclasses.replace(broken, samples=samples)]
    assert gain(trials, UNSEEN, objective=slo)[0] > 0.005  # over the default, not over the broken one


def test_with_several_objectives_each_counts():
    both = Objective("output_tok_s", secondary=("tpot_ms.p50",))
    assert gain([BASE], UNSEEN, objective=both)[0] == pytest.approx(gain([BASE], UNSEEN)[0], rel=0.2)


def test_figures_from_elsewhere_count_as_seen_and_order_what_is_not_tried():
    known = [Point(Candidate({"a": 1}), math.log(0.5), 0.05), Point(Candidate({"b": 1}), math.log(1.2), 0.05)]
    found = Gains([BASE], THROUGHPUT, known)
    bad, good, new = found.of([Candidate({"a": 1}), Candidate({"b": 1}), UNSEEN])
    assert bad < found.floor < new < good
    assert not found.unseen(Candidate({"a": 1, "b": 1}))


def test_own_trials_outweigh_figures_from_elsewhere():
    known = [Point(Candidate({"a": 1}), math.log(1.3), 0.1)]
    trials = [BASE, trial(1, {"a": 1}, 900.0)]
    both = Candidate({"a": 1, "d": 1})
    assert gain(trials, both, known=known)[0] < gain([BASE], both, known=known)[0] / 5


def test_a_new_value_stands_on_what_is_best_by_more_than_noise_and_on_nothing_else():
    on_a, on_b, alone = Candidate({"a": 1, "c": 1}), Candidate({"b": 1, "c": 1}), UNSEEN
    loser = trial(2, {"b": 1}, 900.0)
    luck = Gains([BASE, trial(1, {"a": 1}, 1005.0), loser], THROUGHPUT)
    assert [luck.tells_apart(item) for item in (on_a, on_b, alone)] == [False, False, True]
    ahead = Gains([BASE, trial(1, {"a": 1}, 1100.0), loser], THROUGHPUT)
    assert [ahead.tells_apart(item) for item in (on_a, on_b, alone)] == [True, False, True]
    assert ahead.tells_apart(Candidate({"a": 1, "b": 1}))  # nothing is new in it
    assert not ahead.tells_apart(Candidate({"c": 1, "d": 1}))


def test_simplifications_of_a_winner_are_found_and_of_a_tie_with_the_default_are_not():
    simpler = [Candidate({"a": 1}), Candidate({"b": 1})]
    won = Gains([BASE, trial(1, {"a": 1, "b": 1}, 1200.0), trial(2, {"a": 1, "c": 1}, 1195.0)], THROUGHPUT)
    assert won.as_good_as_best(simpler)[:1] == [Candidate({"a": 1})]
    tied = Gains([BASE, trial(1, {"a": 1, "b": 1}, 1001.0)], THROUGHPUT)
    assert tied.as_good_as_best(simpler) == []


def test_a_dropped_launch_teaches_by_its_estimate_and_is_not_the_best():
    lost = dataclasses.replace(trial(1, {"a": 1}), dropped=Dropped("after a slice", {"output_tok_s": 500.0}))
    lucky = dataclasses.replace(trial(2, {"b": 1}), dropped=Dropped("after a slice", {"output_tok_s": 1500.0}))
    both = Candidate({"a": 1, "d": 1})
    assert gain([BASE, lost], both)[0] < 1e-3 < gain([BASE, lost], UNSEEN)[0]
    assert gain([BASE, lucky], Candidate({"b": 1}))[0] > 0.2  # it is compared with the default, not with itself


# ---------------------------------------------------------------- noise


def seeded(number, values, phase="search", settings=None):
    made = trial(number, {"a": number} if settings is None else settings, 1.0, phase=phase, seeds=range(len(values)))
    return dataclasses.replace(made, samples=tuple(sample(seed, value) for seed, value in enumerate(values)))


def test_seeds_tell_the_least_that_launches_differ_by():
    quiet = [seeded(0, [100, 110], "baseline", {}), *(seeded(n, [100 + n, 110 + 1.1 * n]) for n in range(1, 8))]
    assert launch_noise(quiet, THROUGHPUT) < KNOWN
    loud = [seeded(0, [100, 110], "baseline", {}), *(seeded(n, [100, 110 * (1.3 if n % 2 else 0.8)]) for n in range(1, 8))]
    assert launch_noise(loud, THROUGHPUT) > 0.05


def test_fresh_launches_of_the_default_tell_it_best():
    fresh = [trial(n, {}, value, phase="confirm") for n, value in enumerate((900.0, 1000.0, 1100.0, 1000.0), 1)]
    assert launch_noise([BASE, *fresh[:2]], THROUGHPUT) == pytest.approx(KNOWN)  # two are too few
    assert launch_noise([BASE, *fresh], THROUGHPUT) == pytest.approx(0.058, abs=0.01)


def test_with_one_sample_a_launch_its_slice_stands_beside_it():
    def launched(number, whole, short, phase="search"):
        return dataclasses.replace(seeded(number, [whole], phase), slices=(sample(500_000, short),))

    loud = [launched(0, 100, 90, "baseline"), *(launched(n, 100, 90 * (1.1 if n % 2 else 0.9)) for n in range(1, 8))]
    quiet = [launched(0, 100, 90, "baseline"), *(launched(n, 100 + n, 90 + 0.9 * n) for n in range(1, 8))]
    assert launch_noise(quiet, THROUGHPUT) < KNOWN < 0.03 < launch_noise(loud, THROUGHPUT)


def test_one_figure_a_launch_tells_nothing_of_noise():
    starts = [dataclasses.replace(BASE, start_s=60.0), dataclasses.replace(trial(1, {"a": 1}, 1.0), start_s=20.0)]
    assert launch_noise(starts, Objective("start_s")) == pytest.approx(KNOWN)
