"""The smallest settings that explain failures, and that no trial that worked contradicts."""

from __future__ import annotations

import random
import time

import pytest

from advisor.search.regions import Seen, regions

OOM = ("out_of_memory", "out of memory while capturing CUDA graphs")
CRASH = ("crashed", "illegal memory access")


def seen(features, cause=None, reason="why"):
    return Seen(repr(sorted(features.items())), features, cause, reason if cause else "")


BASE = seen({"max_num_seqs": 256})


def texts(*trials):
    return [region.text for region in regions(trials)]


def test_one_failure_rules_nothing_out():
    assert texts(BASE, seen({"backend": "X", "max_num_seqs": 256}, CRASH)) == []


def test_one_candidate_that_fails_twice_is_one_failure():
    again = seen({"backend": "X", "max_num_seqs": 256}, CRASH)
    assert texts(BASE, again, again) == []


def test_two_failures_with_two_causes_rule_nothing_out():
    trials = [seen({"backend": "X", "a": 1}, CRASH), seen({"backend": "X", "a": 2}, OOM)]
    assert texts(seen({}), *trials) == []


def test_a_word_that_failures_share_and_nobody_who_worked_has():
    failed = [seen({"backend": "X", "max_num_seqs": 256, "graphs": g}, CRASH) for g in ("FULL", "NONE")]
    assert texts(BASE, *failed) == ["backend=X"]


def test_a_word_and_a_number_together_where_each_alone_worked():
    """FlashInfer with many sequences: each of the two was seen to work without the other."""
    worked = [BASE, seen({"backend": "FLASHINFER", "max_num_seqs": 256}), seen({"max_num_seqs": 1024})]
    failed = [seen({"backend": "FLASHINFER", "max_num_seqs": n}, OOM) for n in (1024, 528)]
    assert texts(*worked, *failed) == ["backend=FLASHINFER and max_num_seqs >= 528"]
    found = regions([*worked, *failed])[0]
    assert found.holds({"backend": "FLASHINFER", "max_num_seqs": 2048}) and found.failures == 2
    assert not found.holds({"backend": "FLASHINFER", "max_num_seqs": 512})
    assert not found.holds({"backend": "TRITON_ATTN", "max_num_seqs": 1024})
    assert not found.holds({"backend": "FLASHINFER"})  # not known


def test_two_words_together_where_each_alone_worked():
    worked = [seen({}), seen({"graphs": "FULL", "backend": "A"}), seen({"graphs": "FULL"}), seen({"backend": "B"})]
    failed = [seen({"graphs": "FULL", "backend": "B", "x": x}, CRASH) for x in ("1", "2")]
    assert texts(*worked, *failed) == ["backend=B and graphs=FULL"]


def test_where_several_settings_explain_it_only_their_common_part_is_ruled_out():
    failed = [seen({"backend": "B", "graphs": "FULL", "x": x}, CRASH) for x in ("1", "2")]
    assert texts(seen({}), *failed) == ["backend=B and graphs=FULL"]
    # and the next trial that works tells them apart
    assert texts(seen({}), *failed, seen({"backend": "B", "graphs": "NONE"})) == ["graphs=FULL"]


def test_what_works_once_is_not_ruled_out_any_more():
    failed = [seen({"backend": "B", "x": x}, CRASH) for x in ("1", "2")]
    assert texts(seen({}), *failed) == ["backend=B"]
    assert texts(seen({}), *failed, seen({"backend": "B", "x": "3"})) == []


def test_small_numbers_too_and_numbers_between_two_that_worked():
    failed = [seen({"tokens": n}, CRASH) for n in (512, 256)]
    assert texts(seen({"tokens": 8192}), *failed) == ["tokens <= 512"]
    odd = [seen({"tokens": n}, CRASH) for n in (1000, 1200)]
    assert texts(seen({"tokens": 8192}), seen({"tokens": 512}), *odd) == ["tokens 1000 to 1200"]


def test_two_regions_of_one_cause():
    failed = [seen({"backend": "B", "x": x}, CRASH) for x in ("1", "2", "3")]
    failed += [seen({"eager": True, "y": y}, CRASH) for y in ("1", "2")]
    assert texts(seen({}), *failed) == ["backend=B", "eager"]


@pytest.mark.parametrize("seed", range(20))
def test_on_random_landscapes_no_region_holds_what_worked_and_the_true_one_is_found(seed):
    chance = random.Random(seed)

    def candidate():
        return {"backend": chance.choice("ABC"), "graphs": chance.choice(["FULL", "NONE"]),
                "seqs": chance.choice([64, 256, 528, 1024]), "block": chance.choice([16, 32, 64])}  # fmt: skip

    def cause(found):
        return OOM if found["backend"] == "B" and found["seqs"] >= 528 else None

    trials = [seen(one, cause(one)) for one in (candidate() for _ in range(40))]
    found = regions(trials)
    for region in found:
        assert not any(region.holds(trial.features) for trial in trials if trial.cause is None)
    everything = [{"backend": b, "graphs": g, "seqs": n, "block": k}
                  for b in "ABC" for g in ("FULL", "NONE") for n in (64, 256, 528, 1024) for k in (16, 32, 64)]  # fmt: skip
    wrong = [one for one in everything if not cause(one) and any(region.holds(one) for region in found)]
    assert not wrong
    assert not found or found[0].text.startswith("backend=B and seqs >= ") or found[0].failures < 4


def test_hundreds_of_trials_do_not_hold_the_search_up():
    chance = random.Random(1)

    def one(number):
        features = {f"s{i}": chance.choice("xyz") for i in range(12)} | {f"n{i}": chance.randrange(9) for i in range(4)}
        return seen({**features, "id": str(number)}, CRASH if features["s0"] == "x" and features["s1"] == "y" else None)

    trials = [one(number) for number in range(300)]
    begun = time.perf_counter()
    assert texts(*trials)[0] == "s0=x and s1=y"
    assert time.perf_counter() - begun < 5.0
