"""Sentences on modes that do less and are faster for it, at any batch size."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.anatomy import words
from advisor.anatomy.ahead import LESS, ahead
from advisor.anatomy.modes import MODES


def row(low: float, step: float, high: float, gpu: float | None = None, work: float | None = None) -> dict[str, Any]:
    return {"step_low_ms": low, "step_ms": step, "step_high_ms": high, "gpu_ms": gpu, "host_ms": work}


FULL = {1: row(1.4, 1.5, 1.6), 8: row(1.6, 1.7, 1.9), 512: row(11.4, 12.0, 12.3)}
BOTH = {1: row(1.3, 1.4, 1.5), 8: row(2.1, 2.2, 2.3, gpu=1.5, work=2.4), 512: row(11.1, 11.7, 12.0)}


def test_a_batch_in_the_middle_is_named_where_less_is_faster():
    assert ahead({"full": FULL, "both": BOTH}) == [
        "compile, full graphs: slower than 'full graphs only', which does less, at batch 8 (2.1 ms to 2.3 ms against 1.6 ms to "
        "1.9 ms; its host works for 2.4 ms, the GPU for 1.5 ms)"
    ]
    hidden = {8: {**BOTH[8], "host_ms": 1.2}}
    assert ahead({"full": FULL, "both": hidden})[0].endswith("at batch 8 (2.1 ms to 2.3 ms against 1.6 ms to 1.9 ms)")


@pytest.mark.parametrize(
    "more",
    [
        row(1.85, 2.2, 2.3),  # the quartiles meet
        row(1.91, 1.86, 1.95),  # apart, but by less than 10% of the shorter step
    ],
)
def test_nothing_is_said_of_what_noise_may_be(more: dict[str, Any]):
    assert ahead({"full": FULL, "both": {8: more}}) == []


def test_only_modes_that_do_more_of_the_same_are_compared():
    """Full graphs without compilation and piecewise graphs with it differ in both directions."""
    assert ahead({"full": FULL, "piecewise": BOTH}) == []
    order = [mode.name for mode in MODES]
    assert all(order.index(less) < order.index(name) for name, lesser in LESS.items() for less in lesser)


def test_the_sentences_hold_it_and_leave_unsteady_steps_out():
    def modes(steady: bool) -> dict[str, Any]:
        rows = {"full": FULL, "both": {**BOTH, 8: {**BOTH[8], "gpu_idle_ms": 0.7}}}
        return {
            name: {"decode": [{"batch": batch, "steady": steady, **one} for batch, one in found.items()]}
            for name, found in rows.items()
        }

    assert any("slower than 'full graphs only'" in text for text in words.sentences(modes(True)))
    assert not any("slower than" in text for text in words.sentences(modes(False)))
