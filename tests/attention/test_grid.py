"""Which steps are measured, in which order, and which do not fit."""

from __future__ import annotations

import pytest

from advisor.attention import grid
from advisor.attention.grid import Cell, Limits, Wanted
from advisor.attention.measure import missing, request_of, to_repeat
from advisor.attention.rows import with_repeat
from advisor.attention.shares import LEAST_S, START_AT_LEAST_S, Shares
from advisor.errors import InputError
from tests.attention.test_arms import arm

H200 = Limits(1024, 8192, 131072)


def keys(cells, phase=None):
    return {(cell.batch, cell.context) for cell in cells if phase in (None, cell.phase)}


def test_the_default_grid_of_a_large_gpu():
    cells, out = grid.cells(Wanted(), H200)
    assert keys(cells, "decode") == {(batch, context) for batch in (1, 16, 64, 256) for context in (512, 4096, 16384)}
    assert keys(cells, "mixed") == keys(cells, "decode")
    assert keys(cells, "prefill") == {(1, 512), (4, 512), (16, 512), (1, 2048), (4, 2048), (1, 8192)}
    assert {cell.key for cell, _ in out} == {("prefill", 16, 2048), ("prefill", 4, 8192), ("prefill", 16, 8192)}
    assert {cell.chunk for cell in cells if cell.phase == "mixed"} == {1024}
    assert {cell.chunk for cell in cells if cell.phase != "mixed"} == {None}


def test_a_short_model_gets_shorter_contexts():
    cells, _ = grid.cells(Wanted(), Limits(128, 2048, 2048))
    assert keys(cells, "decode") == {(batch, context) for batch in (1, 16, 64) for context in (256, 1024)}
    assert keys(cells, "prefill") == {(1, 64), (4, 64), (16, 64), (1, 256), (4, 256), (1, 1024)}
    tiny, _ = grid.cells(Wanted(chunk=16), Limits(2, 64, 128))
    assert keys(tiny, "decode") == {(1, 64)}


def test_cheap_cells_come_first():
    cells, _ = grid.cells(Wanted(), H200)
    costs = [grid.cost(cell, 30) for cell in cells]
    assert costs == sorted(costs)
    assert cells[0].key == ("decode", 1, 512)
    assert cells[-1].key == ("mixed", 256, 16384)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (Cell("decode", 2048, 512), "2048 requests at once are needed, vLLM takes 1024 here"),
        (Cell("decode", 1, 36), "36 tokens are decoded around a context, which must be longer"),
        (Cell("decode", 1, 131072), "the model length is 131,072"),
        (Cell("prefill", 3, 4096), "12,288 tokens are more than the 8,192 of one step"),
        (Cell("prefill", 600, 8), "1200 requests at once are needed"),
        (Cell("prefill", 1, 131072), "the model length is 131,072"),
        (Cell("mixed", 1024, 512, 1024), "1026 requests at once are needed"),
        (Cell("mixed", 256, 512, 8000), "8,256 tokens are more than the 8,192 of one step"),
        (Cell("mixed", 1, 512, 131072), "longer than the model length"),
    ],
)
def test_what_does_not_fit_has_a_reason(cell, reason):
    assert reason in grid.objection(cell, H200, 30)


def test_what_fits_has_none():
    for cell in (
        Cell("decode", 1024, 37),
        Cell("prefill", 2, 4096),
        Cell("prefill", 512, 16),
        Cell("mixed", 1022, 512, 1024),
    ):
        assert grid.objection(cell, H200, 30) is None


def test_where_nothing_fits_it_is_an_error():
    with pytest.raises(InputError, match="nothing that could be measured fits: 36 tokens are decoded around it"):
        grid.cells(Wanted(phases=("decode",), contexts=(131072,)), H200)


def test_words():
    assert grid.parse_phases(None) == ("decode", "prefill", "mixed")
    assert grid.parse_phases("mixed, decode") == ("decode", "mixed")
    assert grid.parse_numbers("--contexts", "8, 1,8") == (1, 8)
    assert grid.parse_numbers("--contexts", None) is None
    for wrong in ("", "0", "1,x", "-1"):
        with pytest.raises(InputError, match="--contexts"):
            grid.parse_numbers("--contexts", wrong)


def test_requests_of_the_target():
    assert request_of(Cell("decode", 4, 512), 30, 12.34, 1) == {
        "do": "decode", "batch": 4, "context": 512, "warmup": 6, "steps": 30, "limit_s": 12.3
    }  # fmt: skip
    mixed = request_of(Cell("mixed", 4, 512, 1024), 30, 60, 1)
    assert (mixed["chunk"], mixed["seed"], mixed["steps"], mixed["warmup"]) == (1024, 1, 15, 3)
    assert request_of(Cell("prefill", 4, 512), 8, 60, 0)["steps"] == 5


def test_what_is_left_to_measure():
    one, two, three = (Cell("decode", batch, 512) for batch in (1, 2, 3))
    rows = [
        {"phase": "decode", "batch": 1, "context": 512, "step_ms": None, "failed": True, "reason": "lost"},
        {"phase": "decode", "batch": 2, "context": 512, "step_ms": 5.0, "again_ms": None},
    ]
    assert missing((one, two, three), rows) == [three, one]
    assert to_repeat((one, two, three), rows) == [two]
    assert to_repeat((two,), [{**rows[1], "again_ms": 5.1, "again_steady": True}]) == []
    assert to_repeat((two,), [with_repeat(rows[1], {"ok": False, "error_type": "Refusal", "error": "no"})]) == []
    assert missing((one,), [{**rows[0], "failed": False}]) == []  # it does not fit: that is an answer


# ---------------------------------------------------------------- time


def test_the_time_is_shared():
    shares = Shares(900.0, lambda: 0.0)
    others = [arm("A"), arm("B"), arm("C")]
    assert shares.share_s(arm("D", default=True), others) == 360.0  # it is measured twice
    assert shares.share_s(arm("A"), others[1:]) == 300.0
    assert shares.share_s(arm("C"), []) == 900.0


def test_a_start_may_take_longer_than_its_share_but_not_everything():
    shares = Shares(900.0, lambda: 0.0)
    assert shares.start_limit_s(150.0) == START_AT_LEAST_S
    assert shares.start_limit_s(400.0) == 400.0
    assert Shares(100.0, lambda: 0.0).start_limit_s(50.0) == 100.0


def test_after_a_slow_start_something_is_measured_all_the_same():
    shares = Shares(900.0, lambda: 200.0)
    assert shares.measuring_until(0.0, 150.0) == 200.0 + LEAST_S
    assert shares.measuring_until(0.0, 300.0) == 300.0
    assert Shares(210.0, lambda: 200.0).measuring_until(0.0, 150.0) == 210.0
    assert Shares(210.0, lambda: 200.0).is_over()
    assert not shares.is_over()
