"""What changes nothing beside other settings."""

from __future__ import annotations

import pytest

from advisor.engine.rules.inert import inert_settings

SIZES = [1, 2, 4]


@pytest.mark.parametrize("mode", ["FULL", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", None])
def test_a_capture_list_counts_wherever_graphs_are_captured(mode):
    asked = {"cudagraph_capture_sizes": SIZES} | ({"cudagraph_mode": mode} if mode else {})
    assert inert_settings(asked, "cuda") == {}


def test_a_mode_that_is_given_as_none_is_vllms_own_choice():
    assert inert_settings({"cudagraph_capture_sizes": SIZES, "cudagraph_mode": None}, "cuda") == {}


@pytest.mark.parametrize("mode", ["NONE", "none"])
def test_without_graphs_nothing_is_captured(mode):
    found = inert_settings({"cudagraph_capture_sizes": SIZES, "cudagraph_mode": mode}, "cuda")
    assert found == {"cudagraph_capture_sizes": "without graphs there is nothing to capture"}


def test_eager_mode_makes_graph_settings_inert():
    found = inert_settings({"enforce_eager": True, "cudagraph_capture_sizes": SIZES, "cudagraph_mode": "FULL"}, "cuda")
    assert set(found) == {"cudagraph_capture_sizes", "cudagraph_mode"}
