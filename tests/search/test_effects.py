"""The model of what values do: known cases, its doubt, and that order and repetition of the figures do not matter."""

import math
import random

import numpy as np
import pytest

from advisor.records import Candidate
from advisor.search.effects import LEAN, Effects, Point
from advisor.search.words import Vocabulary, largest_octaves, own_amounts, values_of, words

BASE = Candidate()


def point(value, sd=0.005, **settings):
    return Point(Candidate(settings), value, sd)


A1, B1, A1B1 = Candidate({"a": 1}), Candidate({"b": 1}), Candidate({"a": 1, "b": 1})


def test_two_effects_add_up_and_a_measured_pair_says_more():
    alone = Effects([point(0.0), point(0.10, a=1), point(0.06, b=1)])
    mean, sd = alone.against([A1B1], A1)
    assert mean[0] == pytest.approx(0.06, abs=0.01) and 0.01 < sd[0] < 0.08  # they may work on each other
    together = Effects([point(0.0), point(0.10, a=1), point(0.06, b=1), point(0.02, a=1, b=1)])
    mean, sd = together.against([A1B1], A1)
    assert mean[0] == pytest.approx(-0.08, abs=0.015) and sd[0] < 0.025


def test_a_value_that_nobody_tried_is_expected_to_lose_a_little_and_may_gain():
    model = Effects([point(0.0), point(-0.01, a=1)])
    mean, sd = model.against([Candidate({"c": 7})], BASE)
    assert mean[0] == pytest.approx(LEAN, abs=0.01) and 0.03 < sd[0] < 0.07


def test_one_large_effect_does_not_make_small_ones_uncertain():
    """Eager mode halves the speed; that says nothing about whether another value could double it."""
    small = Effects([point(0.0), point(-0.01, b=1)])
    large = Effects([point(0.0), point(-0.01, b=1), point(-0.66, e=True)])
    unseen = [Candidate({"c": 1})]
    assert large.against(unseen, BASE)[1][0] < 1.5 * small.against(unseen, BASE)[1][0]


def test_pairs_of_values_that_do_nothing_are_expected_to_do_nothing():
    model = Effects([point(0.0), point(0.001, a=1), point(-0.002, b=1)])
    mean, sd = model.against([A1B1], BASE)
    assert abs(mean[0]) < 0.01 and sd[0] < 0.03
    strong = Effects([point(0.0), point(-0.3, a=1), point(0.3, b=1)])
    assert strong.against([A1B1], BASE)[1][0] > 3 * sd[0]


def test_values_of_a_setting_share_what_leaving_its_default_does():
    model = Effects([point(0.0), point(-0.10, backend="X"), point(0.0, other=1)])
    mean, _ = model.against([Candidate({"backend": "Y"}), Candidate({"new": 1})], BASE)
    assert mean[0] < mean[1] - 0.01


OWN = {"max_num_batched_tokens": 8192}


def tokens(amount):
    return {"max_num_batched_tokens": amount}


def test_where_less_of_an_amount_loses_more_of_it_is_expected_to_gain_and_the_other_way_round():
    asked = [Candidate(tokens(16384)), Candidate(tokens(4096))]
    less = Effects([point(0.0), point(-0.2, **tokens(2048))], own=OWN)
    more, between = less.means(asked)
    assert more > 0.01 > 0 > between > -0.2
    named = Effects([point(0.0), point(-0.2, **tokens(2048))])  # without vLLM's own amount, values are names
    assert named.means(asked)[0] < -0.02
    more = Effects([point(0.0), point(-0.1, **tokens(16384))], own=OWN)
    assert more.means([Candidate(tokens(2048))])[0] > 0.01
    flat = Effects([point(0.0), point(0.0, **tokens(2048))], own=OWN)
    assert abs(flat.means(asked)[0]) < 0.03


def test_the_farthest_amounts_do_as_much_as_values_of_other_settings():
    asked = [Candidate(tokens(128)), Candidate(tokens(4096)), A1]
    spreads = {
        name: Effects([point(0.0)], own=OWN, octaves=octaves).against(asked, Candidate())[1]
        for name, octaves in (("told", {"max_num_batched_tokens": 6.0}), ("not told", None))
    }
    far, near, other = spreads["told"]
    assert near < far == pytest.approx(other, rel=0.01) and spreads["not told"][0] > 3 * other
    told = {"a": {"max_num_batched_tokens": 128}, "b": {"max_num_batched_tokens": 16384}, "c": {}}
    assert largest_octaves(told.values(), OWN) == {"max_num_batched_tokens": 6.0}
    assert largest_octaves([], OWN) == {"max_num_batched_tokens": 1.0} and largest_octaves(told.values(), {}) == {}


def test_names_truth_values_and_limits_that_do_not_bind_are_no_amounts():
    vocabulary = Vocabulary({"max_num_batched_tokens": 8192, "flag": 1})
    matrix = vocabulary.matrix([Candidate({"max_num_batched_tokens": 2048, "flag": True, "attention_backend": "X"})])
    assert sorted(matrix[0]) == [-2, 1, 1, 1, 1, 1]
    told = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024, "flash_attention_version": 3}
    assert own_amounts(told) == {"max_num_batched_tokens": 8192}
    assert not own_amounts({"max_num_batched_tokens": None})


def test_a_large_loss_from_elsewhere_is_believed_and_is_not_that_of_its_siblings():
    known = [point(0.0), Point(Candidate({"graphs": "NONE"}), -0.42, 0.19)]
    loser, sibling, other = Effects(known).means([Candidate({"graphs": item}) for item in ("NONE", "FULL")] + [A1])
    assert loser < -0.3 and other - 0.01 < sibling < other
    measured = Effects([*known, point(-0.6, graphs="NONE")])
    loser, sibling = measured.means([Candidate({"graphs": item}) for item in ("NONE", "FULL")])
    assert loser == pytest.approx(-0.6, abs=0.02) and sibling > -0.05


def test_lists_that_end_on_the_same_size_are_alike():
    sizes = "cudagraph_capture_sizes"
    known = [point(0.0), Point(Candidate({sizes: [8, 1024]}), 0.2, 0.005), Point(Candidate({sizes: [8, 64]}), 0.0, 0.005)]
    mean = Effects(known).means([Candidate({sizes: [1, 2, 1024]}), Candidate({sizes: [1, 2, 64]})])
    assert mean[0] > mean[1] + 0.03


def test_noise_is_not_taken_for_an_effect():
    noisy = Effects([point(0.0, 0.15), point(0.2, 0.15, a=1)])
    assert noisy.against([A1], BASE)[0][0] < 0.1
    assert Effects([point(0.0), point(0.2, a=1)]).against([A1], BASE)[0][0] > 0.19


def test_a_large_effect_that_is_known_with_a_large_error_is_believed():
    far = Effects([point(0.0), Point(A1, -1.2, 0.3)])
    assert far.means([A1])[0] < -0.9
    assert far.against([A1B1], BASE)[0][0] < -0.9


def test_doubt_grows_where_the_model_is_wrong():
    """Each pair does the opposite of what its members do alone."""
    fits, wrong = [point(0.0)], [point(0.0)]
    for name in "abcd":
        fits.append(point(0.05, **{name: 1}))
        wrong.append(point(0.05, **{name: 1}))
    for one, other in ("ab", "bc", "cd", "ad"):
        fits.append(point(0.10, **{one: 1, other: 1}))
        wrong.append(point(-0.20, **{one: 1, other: 1}))
    assert Effects(fits).doubt == 1.0
    assert Effects(wrong).doubt > 1.2


def test_the_order_of_the_figures_does_not_matter():
    rng = random.Random(1)
    points = [Point(Candidate({name: rng.randrange(3) for name in "abcd"}), rng.gauss(0, 0.05), 0.006) for _ in range(15)]
    asked = [Candidate({"a": n, "c": m}) for n in range(3) for m in range(3)]
    first = Effects(points).against(asked, points[0].candidate)
    again = Effects(points[::-1]).against(asked, points[0].candidate)
    assert np.allclose(first, again, atol=1e-6)


def test_figures_are_met_within_their_noise():
    rng = random.Random(2)
    truth = {("a", 1): 0.05, ("a", 2): -0.3, ("b", 1): 0.02, ("c", 1): -0.08}
    settings = [{}, *({name: value} for name, value in truth), {"a": 1, "b": 1}, {"a": 2, "c": 1}]
    points = [
        Point(Candidate(item), sum(truth[pair] for pair in item.items()) + rng.gauss(0, 0.006), 0.006) for item in settings
    ]
    found = Effects(points).means([item.candidate for item in points])
    assert max(abs(found - [item.value for item in points])) < 0.02


def test_six_hundred_candidates_after_forty_figures_take_milliseconds():
    import time

    rng = random.Random(3)
    asked = [Candidate({name: rng.randrange(4) for name in "abcdef"}) for _ in range(600)]
    points = [Point(item, rng.gauss(0, 0.1), 0.006) for item in asked[:40]]
    Effects(points).against(asked, asked[0])  # the words are read once
    begun = time.process_time()
    Effects(points).against(asked, asked[0])
    assert time.process_time() - begun < 0.25


def test_words_of_a_candidate():
    made = Candidate({"a": True, "cudagraph_capture_sizes": (1, 64)})
    assert values_of(made) == {("a", "true"), ("cudagraph_capture_sizes", "[1, 64]")}
    assert ("largest of cudagraph_capture_sizes: 64", "") in words(made)
    vocabulary = Vocabulary()
    before = vocabulary.matrix([made])
    after = vocabulary.matrix([made, Candidate({"z": 1})])
    assert (after[0, : before.shape[1]] == before[0]).all() and after[0, before.shape[1] :].sum() == 0


def test_without_figures_of_its_own_only_the_lean_is_known():
    model = Effects([Point(BASE, 0.0, 0.006)])
    mean, sd = model.against([A1, BASE], BASE)
    assert mean[0] == pytest.approx(LEAN) and mean[1] == 0 and sd[1] == 0 and math.isfinite(sd[0])
