"""Step times: monotone, interpolated, honest about where they come from."""

import json
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.search.step_times import ASSUMED_EAGER_MS, assumed, measured, step_times_of

BENCH = Path(__file__).parent.parent / "data" / "bench"


def test_between_beyond_and_below_the_points():
    times = measured({10: 2.0, 20: 3.0, 40: 5.0}, 4.0, "made")
    assert times.graph([1, 10, 15, 40, 50]).tolist() == [2.0, 2.0, 2.5, 5.0, pytest.approx(6.0)]
    assert times.eager([10, 40]).tolist() == [4.0, 5.0]  # never quicker than in a graph


def test_a_larger_batch_that_was_quicker_is_noise():
    times = measured({1: 1.66, 8: 1.71, 33: 1.50, 64: 2.0}, None, "made")
    grid = times.graph(range(1, 200))
    assert (np.diff(grid) >= 0).all()
    assert 1.5 < grid[19] < 1.71  # between those two


def test_weights_say_which_of_two_is_believed():
    times = measured({1: 3.0, 2: 1.0}, None, "made", {1: 1.0, 2: 99.0})
    assert times.graph([5])[0] == pytest.approx(1.02)


@pytest.mark.parametrize("points", [{}, {1: 0.0}, {-1: 2.0}, {1: float("inf")}, {1: float("nan")}])
def test_impossible_points(points):
    with pytest.raises(InputError, match="step times"):
        measured(points, None, "made")


def test_assumptions_are_labelled():
    times = assumed()
    assert times.source.startswith("assumed") and times.eager_ms == ASSUMED_EAGER_MS
    assert assumed(7.0).eager_ms == 7.0


def played(requests: int, tokens: int, step_s) -> dict:
    """All requests sent at once and decoded in step; `step_s(n)`; one drops out after each further token."""
    counts = [tokens + i for i in range(requests)]
    gaps = [[] for _ in counts]
    for position in range(max(counts) - 1):
        alive = [i for i, count in enumerate(counts) if count - 1 > position]
        for i in alive:
            gaps[i].append(step_s(len(alive)))
    return {"start_times": [0.0] * requests, "ttfts": [0.1] * requests, "itls": gaps, "input_lens": [9000] * requests}


def test_from_the_gaps_of_a_benchmark():
    times = step_times_of(played(8, 200, lambda n: 0.002 + 0.001 * n))
    assert times.points[8] == pytest.approx(10.0, rel=1e-6) and "client" in times.source
    spec = step_times_of(played(8, 200, lambda n: 0.002 + 0.001 * n), tokens_a_request=3)
    assert spec.points[24] == pytest.approx(10.0, rel=1e-6)


def test_tokens_in_bundles_are_no_steps():
    assert step_times_of(json.loads((BENCH / "starved.json").read_text())) is None


def test_a_real_result():
    """vLLM 0.32.0 on a processor, four in flight: the client's own mean gap is 9.6 ms, half of them below 8.5."""
    times = step_times_of(json.loads((BENCH / "closed_loop.json").read_text()))
    assert 6.5 < times.graph([4])[0] < 9.7


def test_all_failed():
    assert step_times_of(json.loads((BENCH / "all_failed.json").read_text())) is None
