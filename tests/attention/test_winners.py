"""Who is ahead, when it is noise, and how that is said."""

from __future__ import annotations

import pytest

from advisor.attention.regions import joined, region
from advisor.attention.table import plain
from advisor.attention.winners import LEAST, comparison, is_ahead, noise
from advisor.attention.words import alone, keep, sentences, winners

DEFAULT = "FLASH_ATTN:3"


def row(ms, batch=1, context=512, phase="decode", spread=0.01, again=None, steady=True, again_steady=True):
    return {
        "phase": phase, "batch": batch, "context": context, "step_ms": ms, "step_low_ms": ms * (1 - spread),
        "step_high_ms": ms * (1 + spread), "steady": steady, "again_ms": again, "again_steady": again_steady, "reason": None,
    }  # fmt: skip


def backends(**rows):
    names = {"FA": DEFAULT, "FI": "FLASHINFER", "TR": "TRITON_ATTN"}
    return {names[short]: {"rows": found, "active": {}, "reason": None} for short, found in rows.items()}


def one(**rows):
    (cell,) = comparison(backends(**rows), DEFAULT)["cells"]
    return cell


def test_more_than_the_noise_wins():
    cell = one(FA=[row(10.0, again=10.05)], FI=[row(9.0)], TR=[row(9.9)])
    assert (cell["outcome"], cell["best"], cell["tied"]) == ("wins", "FLASHINFER", ["FLASHINFER"])
    assert (cell["over_default"], cell["over_next"], cell["margin"]) == (0.1111, 0.1, LEAST)


def test_less_is_a_tie_and_the_default_is_among_the_tied():
    cell = one(FA=[row(10.0, again=10.0)], FI=[row(9.85)])
    assert (cell["outcome"], cell["tied"]) == ("tie", ["FLASHINFER", DEFAULT])


def test_the_cells_own_noise_counts():
    assert one(FA=[row(10.0, again=11.2)], FI=[row(9.0)])["outcome"] == "tie"
    assert one(FA=[row(10.0, again=11.0)], FI=[row(9.0)])["outcome"] == "wins"


def test_cells_lend_each_other_their_noise():
    own = [row(10.0, batch, again=10.0 * (1 + part)) for batch, part in ((1, 0.001), (2, 0.15), (4, 0.15), (8, 0.15))]
    found = comparison(backends(FA=own, FI=[row(9.0, 1)]), DEFAULT)
    assert found["noise"]["decode"] == {"cells": 4, "typical": 0.15, "high": 0.15, "most": 0.15, "faster": 0}
    cell = next(cell for cell in found["cells"] if cell["batch"] == 1)
    assert (cell["outcome"], cell["margin"]) == ("tie", 0.15)
    other = comparison(
        backends(FA=[*own, row(10.0, 1, phase="mixed", again=10.0)], FI=[row(9.0, 1, phase="mixed")]), DEFAULT
    )
    assert (
        next(cell for cell in other["cells"] if cell["phase"] == "mixed")["outcome"] == "wins"
    )  # of its own phase only


def test_quartiles_that_meet_are_a_tie_however_far_the_medians_are():
    assert one(FA=[row(10.0, spread=0.08)], FI=[row(9.0, spread=0.08)])["outcome"] == "tie"
    assert is_ahead(row(9.0, spread=0.04), row(10.0, spread=0.04), 0.02)


def test_several_may_be_ahead_together():
    cell = one(FA=[row(10.0, again=10.0)], FI=[row(9.0)], TR=[row(9.05)])
    assert (cell["outcome"], cell["tied"]) == ("ahead-together", ["FLASHINFER", "TRITON_ATTN"])


def test_one_whose_steps_spread_far_is_not_taken_along():
    rows = {"FA": [row(10.0, again=10.0)], "FI": [row(9.0)], "TR": [row(10.5, spread=0.2)]}
    cell = one(**rows)
    assert (cell["outcome"], cell["best"], cell["tied"]) == ("ahead-together", "FLASHINFER", ["FLASHINFER"])
    assert winners("decode", [cell], DEFAULT) == [
        "FLASHINFER is ahead of FLASH_ATTN:3 in decode everywhere, though not of all others: FLASH_ATTN:3 takes 11% longer"
    ]


def test_the_default_wins_too():
    cell = one(FA=[row(9.0, again=9.0)], FI=[row(10.0)])
    assert (cell["outcome"], cell["best"], cell["over_default"], cell["over_next"]) == ("wins", DEFAULT, 0.0, 0.1111)


def test_steps_that_are_not_steady_win_and_lose_nothing():
    assert one(FA=[row(10.0)], FI=[row(5.0, steady=False)])["outcome"] == "alone"
    assert one(FA=[row(10.0, steady=False)], FI=[row(5.0, steady=False)])["outcome"] == "unsteady"
    cell = one(FI=[row(5.0)], TR=[row(8.0)])  # the default was not measured here
    assert (cell["outcome"], cell["best"], cell["over_default"]) == ("wins", "FLASHINFER", None)


def test_a_second_measurement_that_was_disturbed_tells_no_noise():
    key = ("decode", 1, 512)
    assert noise({key: row(10.0, again=60.0, again_steady=False)})["decode"]["cells"] == 0
    assert noise({key: row(10.0, again=10.4)})["decode"] == {
        "cells": 1, "typical": 0.04, "high": 0.04, "most": 0.04, "faster": 0,
    }  # fmt: skip


def test_who_is_ahead_is_ahead_of_both_measurements_of_the_default():
    """As measured on an H200: a first 18.63 ms, a second 12.90; FLASHINFER's 14.0 is between the two."""
    own = row(18.63, phase="prefill", again=12.90)
    assert noise({("prefill", 1, 512): own})["prefill"] == {
        "cells": 1, "typical": 0.4442, "high": 0.4442, "most": 0.4442, "faster": 1,
    }  # fmt: skip
    assert one(FA=[own], FI=[row(14.0, phase="prefill")])["outcome"] == "tie"
    assert one(FA=[own], FI=[row(12.8, phase="prefill")])["outcome"] == "wins"


def test_a_second_measurement_that_was_disturbed_counts_in_its_own_cell():
    """As measured on an H200: 3.04 ms, and 3.91 of steps that were not steady; TRITON_ATTN took 2.61."""
    found = comparison(
        backends(
            FA=[row(3.04, 128, again=3.91, again_steady=False), row(3.04, 64, again=3.05)],
            TR=[row(2.61, 128), row(2.61, 64)],
        ),
        DEFAULT,
    )
    assert found["noise"]["decode"]["cells"] == 1
    assert {cell["batch"]: cell["outcome"] for cell in found["cells"]} == {128: "tie", 64: "wins"}


def test_nobody_wins_a_cell_in_which_the_default_was_not_steady():
    """As measured on an H200: 16.2 ms between 14.1 and 17.7, the second time 12.5; FLASHINFER took 15.5."""
    rows = {"FA": [row(16.2, spread=0.11, steady=False, again=12.5)], "FI": [row(15.5)], "TR": [row(18.7)]}
    cell = one(**rows)
    assert (cell["outcome"], cell["best"], cell["tied"]) == ("unsteady", None, [])


def test_one_that_was_not_steady_and_may_be_as_fast_leaves_no_winner():
    """As measured on an H200: 13.8 ms, beside 23.2 of which a quarter were under 15.4; Triton took 20."""
    cell = one(FA=[row(13.8, again=12.4)], FI=[row(23.2, spread=0.34, steady=False)], TR=[row(20.0)])
    assert (cell["outcome"], cell["best"]) == ("tie", DEFAULT)
    assert (
        one(FA=[row(13.8, again=12.4)], FI=[row(23.2, spread=0.2, steady=False)], TR=[row(20.0)])["outcome"] == "wins"
    )
    other = one(FA=[row(20.0, again=20.1)], FI=[row(23.2, spread=0.34, steady=False)], TR=[row(15.4)])
    assert (other["outcome"], other["tied"]) == ("ahead-together", ["TRITON_ATTN"])  # ahead of the default at least


# ---------------------------------------------------------------- where

GRID = [(batch, context) for context in (512, 4096) for batch in (1, 16, 64)]
NAMES = ("batch", "context")


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (GRID, ""),
        ([(64, 512), (64, 4096)], "at batch 64"),
        ([(16, 512), (64, 512), (16, 4096), (64, 4096)], "from batch 16 on"),
        ([(1, 512), (16, 512), (1, 4096), (16, 4096)], "up to batch 16"),
        ([(1, 4096), (16, 4096), (64, 4096)], "at context 4096"),
        ([(64, 4096)], "at batch 64, at context 4096"),
        ([(16, 4096), (64, 4096)], "from batch 16 on, at context 4096"),
        ([(1, 512), (64, 4096)], "at context 512 with batch 1, at context 4096 with batch 64"),
        ([(1, 512), (16, 512), (64, 4096)], "at context 512 with batch 1 and 16, at context 4096 with batch 64"),
    ],
)
def test_a_region_in_words(places, said):
    assert region(places, GRID, NAMES) == said


def test_a_rectangle_is_named_by_what_was_compared():
    assert region([(64, 4096)], [(1, 512), (1, 4096), (64, 4096)], NAMES) == "at batch 64"
    assert region([(16, 512)], [(1, 512), (16, 512), (64, 512), (16, 4096)], NAMES) == "at batch 16, at context 512"
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"


# ---------------------------------------------------------------- sentences


def cells(**rows):
    return comparison(backends(**rows), DEFAULT)["cells"]


def own(ms=10.0):
    return [row(ms, *place, again=ms) for place in GRID]


def faster(places, ms=9.0):
    return [row(ms if place in places else 10.0, *place) for place in GRID]


def test_a_winner_is_said_with_where_and_by_how_much():
    found = cells(FA=own(), FI=faster([(16, 4096), (64, 4096)]))
    assert winners("decode", found, DEFAULT) == [
        "FLASHINFER wins decode from batch 16 on, at context 4096: FLASH_ATTN:3 takes 11% longer",
        "decode: everywhere else a tie (4 of 6 cells)",
    ]
    assert keep(found, DEFAULT) == []


def test_everywhere_and_nowhere():
    assert winners("decode", cells(FA=own(), FI=faster(GRID)), DEFAULT) == [
        "FLASHINFER wins decode everywhere: FLASH_ATTN:3 takes 11% longer"
    ]
    found = cells(FA=own(), FI=faster([]))
    assert winners("decode", found, DEFAULT) == ["decode: a tie in all 6 cells"]
    assert keep(found, DEFAULT) == [
        "no backend is ahead of FLASH_ATTN:3, vLLM's own choice, in any of 6 cells: keep it"
    ]


def test_a_range_of_gains():
    fast = [row(9.0 if batch == 1 else 8.0, batch, context) for batch, context in GRID]
    assert winners("decode", cells(FA=own(), FI=fast), DEFAULT)[0].endswith("FLASH_ATTN:3 takes 11% to 25% longer")


def test_the_default_that_wins_is_kept():
    found = cells(FA=own(9.0), FI=faster([]))
    assert (
        winners("decode", found, DEFAULT)[0]
        == "FLASH_ATTN:3, vLLM's own choice, wins decode everywhere: the next one takes 11% longer"
    )
    assert keep(found, DEFAULT)[0].endswith("keep it")


def test_two_that_are_equal_among_themselves():
    found = cells(FA=own(), FI=faster([(64, 4096)]), TR=faster([(64, 4096)], 9.02))
    assert winners("decode", found, DEFAULT)[0] == (
        "FLASHINFER and TRITON_ATTN are ahead of FLASH_ATTN:3 in decode at batch 64, at context 4096, equal among themselves: "
        "FLASH_ATTN:3 takes 11% longer"
    )


def test_without_the_default_nothing_is_said_to_be_kept():
    found = cells(FI=faster([]), TR=faster([]))
    assert keep(found, DEFAULT) == []


def test_unsteady_and_noise_are_said_first():
    document = {"default": DEFAULT, "legal": [DEFAULT, "FLASHINFER"], "backends_error": None}
    rows = backends(FA=[row(10.0, again=10.1), row(10.0, 16)], FI=[row(9.0), row(9.0, 16, steady=False)])
    document |= {"backends": rows, **comparison(rows, DEFAULT)}
    said = sentences(document)
    assert said[0] == "FLASHINFER: steps were not steady in decode 16 x 512: nothing below is said of these"
    assert said[1] == (
        "noise of decode: measured a second time, FLASH_ATTN:3 differed by 1.0% (median of 1 cell), 1.0% at most; differences "
        "over 2.0% count, or the cell's own"
    )
    assert said[-2:] == [
        "FLASHINFER takes, beside FLASH_ATTN:3: 0.90 times in decode",
        "FLASHINFER is ahead of FLASH_ATTN:3, vLLM's own choice, in 1 of 1 cell, and behind in 0: worth an `advisor tune` where "
        "such steps are most of the load",
    ]


def test_the_last_word_counts_where_a_winner_is_behind():
    own_rows = [row(10.0, batch, again=10.0) for batch in (1, 2, 4)]
    rows = backends(FA=own_rows, FI=[row(9.0, 1), row(12.0, 2), row(10.0, 4)])
    document = {"default": DEFAULT, "legal": [DEFAULT, "FLASHINFER"], "backends_error": None, "backends": rows}
    assert "in 1 of 3 cells, and behind in 1: worth" in sentences(document | comparison(rows, DEFAULT))[-1]


def test_a_second_time_that_is_faster_everywhere_is_no_chance():
    rows = backends(FA=[row(10.0, batch, again=9.0) for batch in (1, 2, 4, 8)], FI=[row(9.5, 1)])
    document = {"default": DEFAULT, "legal": [DEFAULT, "FLASHINFER"], "backends_error": None, "backends": rows}
    said = sentences(document | comparison(rows, DEFAULT))[0]
    assert said.endswith("or the cell's own; faster the second time in 4 of 4: the machine was not the same then")
    rows[DEFAULT]["rows"][2]["again_ms"] = rows[DEFAULT]["rows"][3]["again_ms"] = 11.0
    said = sentences(document | comparison(rows, DEFAULT))[0]
    assert said.endswith("or the cell's own")


def test_reasons_of_vllm_in_plain_words():
    assert (
        plain(
            "FA2 is unavailable due to: cannot import name '_vllm_fa2_C' from partially initialized module 'vllm.vllm_flash_attn' ("
            "most likely due to a circular import) (__init__.py)"
        )
        == "its library _vllm_fa2_C cannot be loaded in this installation"
    )
    assert plain("sink not supported; kv_cache_dtype not supported") == (
        "sink not supported; it does not take this --kv-cache-dtype"
    )
    assert plain("FA4 needs the Python package cutlass") == "FA4 needs the Python package cutlass"


def test_a_phase_that_was_not_measured_twice_says_so():
    rows = backends(FA=[row(10.0)], FI=[row(9.0)])
    document = {"default": DEFAULT, "legal": [DEFAULT, "FLASHINFER"], "backends_error": None, "backends": rows}
    said = sentences(document | comparison(rows, DEFAULT))
    assert "noise of decode: FLASH_ATTN:3 was not measured a second time, differences over 2% count" in said


def test_one_alone():
    assert alone({"legal": ["CPU_ATTN"]}) == [
        "only CPU_ATTN is legal here, so there is nothing to compare: its figures stand alone"
    ]
    assert alone({"legal": ["A", "B"]}) == []
