"""How long a step takes by its tokens: measured points, or a stated assumption. Pure.

Between points times are interpolated, above the last they go on at the slope of the upper half, below the first they are its own.
They never fall: a larger batch that was measured quicker is taken for noise (isotonic regression).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.errors import InputError
from advisor.search.token_times import decoding_gaps, joining_times

# A small model on an H200 host with slow cores, vLLM 0.26.0: 1.7 ms at one request, 3.5 ms at 200; 14 to 19 ms without graphs.
ASSUMED_MS = {0: 1.7, 200: 3.5}
ASSUMED_EAGER_MS = 15.0
_FEWEST = 20  # gaps behind a point
_QUARTILE = 0.25
_NO_STEP_MS = 0.2  # no step of a model is so short: these tokens arrived with the ones before


@dataclass(frozen=True)
class StepTimes:
    """`points`: tokens -> ms of a step in a graph of that size. A step without a graph takes `eager_ms`, or as long as in one.

    The eager floor is the time that the host needs to launch all kernels of a step, whatever the batch.
    """

    points: Mapping[float, float]
    eager_ms: float
    source: str

    def graph(self, tokens: Sequence[int]) -> np.ndarray:
        """ms of a step in a graph, for each number of tokens."""
        x, y = self._line
        asked = np.asarray(tokens, dtype=float)
        inner = np.interp(asked, x, y)
        if len(x) > 1:
            half = np.interp(x[-1] / 2, x, y)
            above = y[-1] + (asked - x[-1]) * (y[-1] - half) / (x[-1] / 2)
            inner = np.where(asked > x[-1], above, inner)
        return inner

    def eager(self, tokens: Sequence[int]) -> np.ndarray:
        """ms of a step without a graph, for each number of tokens."""
        return np.maximum(self.graph(tokens), self.eager_ms)

    @property
    def _line(self) -> tuple[np.ndarray, np.ndarray]:
        x = sorted(self.points)
        return np.array(x, dtype=float), np.array([self.points[tokens] for tokens in x])


def assumed(eager_ms: float | None = None) -> StepTimes:
    """For where nothing was measured."""
    floor = ASSUMED_EAGER_MS if eager_ms is None else eager_ms
    low, high = ASSUMED_MS[0], ASSUMED_MS[200]
    source = (
        f"assumed: {low:g} ms and {1000 * (high - low) / 200:.0f} us a token, as a 0.6B model has on an H200; give your own "
        "with --step-times"
    )
    return StepTimes(ASSUMED_MS, floor, source)


def measured(
    points: Mapping[int, float], eager_ms: float | None, source: str, weights: Mapping[int, float] | None = None
) -> StepTimes:
    """Of measured points (tokens -> ms), made monotone; `weights` say how much stands behind each. Raises InputError."""
    if not points or any(tokens < 0 or not 0 < ms < float("inf") for tokens, ms in points.items()):
        raise InputError(
            "step times: each needs a number of tokens and a time above zero", 'write {"1": 1.7, "64": 2.3}'
        )
    floor = ASSUMED_EAGER_MS if eager_ms is None else eager_ms
    return StepTimes(_monotone(points, weights or {}), floor, source)


def step_times_of(raw: Mapping[str, Any], eager_ms: float | None = None, tokens_a_request: int = 1) -> StepTimes | None:
    """Of a benchmark client's raw result: the gaps between two tokens by the requests that decode at that moment.

    The lower quartile of them: longer ones hold prompts of other requests, whose steps are points of their own. None where too
    few gaps were seen, or tokens came in bundles because the client or the server's own process was behind. Raises ValueError
    as `token_times`.
    """
    gaps, decoding = decoding_gaps(raw)
    if not len(gaps):
        return None
    points: dict[int, float] = {}
    weights: dict[int, float] = {}
    order = np.argsort(decoding, kind="stable")
    for requests, part in zip(*_grouped(decoding[order], gaps[order]), strict=True):
        if requests > 0 and len(part) >= _FEWEST:
            points[int(requests) * tokens_a_request] = float(np.quantile(part, _QUARTILE)) * 1000
            weights[int(requests) * tokens_a_request] = float(len(part))
    if not points or min(points.values()) < _NO_STEP_MS:
        return None
    for tokens, seconds in joining_times(raw, tokens_a_request):
        if seconds * 1000 >= _NO_STEP_MS and tokens not in points:
            points[tokens] = seconds * 1000
    return measured(
        points, eager_ms, "lower quartile of the gaps between tokens that the benchmark client saw", weights
    )


def _grouped(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """(distinct keys, the values of each); keys are sorted."""
    distinct, starts = np.unique(keys, return_index=True)
    return distinct, np.split(values, starts[1:])


def _monotone(points: Mapping[int, float], weights: Mapping[int, float]) -> dict[float, float]:
    """The nearest times that never fall: neighbours that do become one point in their middle."""
    pools: list[tuple[float, float, float]] = []  # (tokens, ms, weight)
    for tokens in sorted(points):
        pool = (float(tokens), points[tokens], weights.get(tokens, 1.0))
        while pools and pools[-1][1] >= pool[1]:
            pool = _together(pools.pop(), pool)
        pools.append(pool)
    return {tokens: ms for tokens, ms, _ in pools}


def _together(one: tuple[float, float, float], other: tuple[float, float, float]) -> tuple[float, float, float]:
    weight = one[2] + other[2]
    tokens, ms = ((a * one[2] + b * other[2]) / weight for a, b in zip(one[:2], other[:2], strict=True))
    return tokens, ms, weight
