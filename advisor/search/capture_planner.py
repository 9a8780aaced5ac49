"""The best list of CUDA-graph sizes for each number of graphs: exact, by dynamic programming. Pure arithmetic, no vLLM.

A batch runs in the smallest captured size that holds it, above the largest without a graph. With the sizes s_1 < s_2 < ...,
W_j steps up to size s_j and T_j the time of a step of that size, the best time of all steps up to s_j in k graphs is

    D[k][j] = min over i < j of D[k-1][i] + (W_j - W_i) * T_j

For a given j that is the lowest of the lines D[k-1][i] - W_i * t at t = T_j, so it lies on the lower convex hull of the points
(W_i, D[k-1][i]): one hull and one sorted look-up answer all j of a row. Rows allow fewer graphs than k, which changes
nothing: a step takes no longer in a smaller size, so another graph never costs time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NEARLY_ALL = 0.95  # where so much of a row is on its hull, guessing costs more than it saves


@dataclass(frozen=True)
class Steps:
    """What is planned for: one row a size that may be captured and is the smallest one for some batch, ascending.

    `count`: steps whose batch has this as its smallest size, above 0. `graph_ms`: one step of that size in a graph, never
    falling. `eager_ms`: all `count` steps together without a graph. `boundary`: the first `boundary` sizes are for decode
    batches, which must not run in a size of the rest (0 or all of them: no such difference).
    """

    sizes: tuple[int, ...]
    count: Sequence[float]
    graph_ms: Sequence[float]
    eager_ms: Sequence[float]
    boundary: int = 0

    def __post_init__(self) -> None:
        rows = (self.sizes, self.count, self.graph_ms, self.eager_ms)
        if len({len(row) for row in rows}) != 1:
            raise ValueError("sizes, counts and times differ in number")
        if any(np.diff(self.sizes) <= 0) or any(np.diff(self.graph_ms) < 0) or any(np.asarray(self.count) <= 0):
            raise ValueError("sizes must rise, times must not fall, and every size needs steps")

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """(first, end) of the rows that may share a graph."""
        total, cut = len(self.sizes), self.boundary
        return ((0, cut), (cut, total)) if 0 < cut < total else ((0, total),)


@dataclass(frozen=True)
class Curve:
    """The best list for each number of graphs. `total_ms[k]`: all steps, with at most k graphs, k from 0."""

    total_ms: tuple[float, ...]
    _sizes: tuple[int, ...]
    _ends: tuple[int, ...]  # k -> how many of the sizes are covered
    _cuts: tuple[np.ndarray, ...]  # row k -> for each j the best i

    @property
    def most(self) -> int:
        return len(self.total_ms) - 1

    def sizes(self, graphs: int) -> tuple[int, ...]:
        """The best list of at most so many sizes, ascending; () where a step is quicker without any graph."""
        graphs = min(graphs, self.most)
        chosen: list[int] = []
        end = self._ends[graphs]
        for row in range(graphs, 0, -1):
            if end == 0:
                break
            before = int(self._cuts[row][end])
            if before < end:  # equal: this graph would save nothing
                chosen.append(self._sizes[end - 1])
            end = before
        return tuple(reversed(chosen))


def plan(steps: Steps, most: int | None = None) -> Curve:
    """The whole curve, up to `most` graphs or as many as there are sizes."""
    total = len(steps.sizes)
    most = total if most is None else min(most, total)
    work, eager = _summed(steps.count), _summed(steps.eager_ms)
    time = np.array([0.0, *steps.graph_ms])
    tail = eager[-1] - eager  # the steps above j, without a graph
    itself = np.arange(total + 1)
    best = np.full(total + 1, np.inf)
    best[0] = 0.0
    totals, ends, cuts = [float(tail[0])], [0], [itself]
    hulls = [itself[first:end] for first, end in steps.blocks]
    for row in range(1, most + 1):
        cut, better = itself.copy(), best.copy()
        for place, (first, end) in enumerate(steps.blocks):
            # Up to j = row each batch has its own size already; a later block needs a graph for each one before it.
            low = max(first, row - 1)
            if low >= end or row - 1 < place:
                continue
            high = low + 1 if row - 1 == place else end
            hull, slopes = _hull(work, best, itself[low:high], hulls[place])
            hulls[place] = hull if high == end else hulls[place]
            times, asked = time[low + 1 : end + 1], itself[low + 1 : end + 1]
            # No line of a point above j is lower there than that of j itself; where they tie, j is meant.
            found = np.minimum(hull[slopes.searchsorted(times)], asked)
            better[asked] = best[found] + (work[asked] - work[found]) * times
            cut[asked] = found
        best = better
        whole = best + tail
        ends.append(int(whole.argmin()))
        totals.append(float(whole[ends[-1]]))
        cuts.append(cut)
    return Curve(tuple(totals), steps.sizes, tuple(ends), tuple(cuts))


def _summed(values: Sequence[float]) -> np.ndarray:
    return np.cumsum([0.0, *values])


def _hull(x: np.ndarray, y: np.ndarray, index: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(vertices of the lower convex hull of the points `index`, slopes between them).

    The hull of the row before, `last`, is a good guess: what lies above its chain of points, moved to this row, is no vertex.
    """
    low, high = index[0], index[-1]
    inner = last[last.searchsorted(low, "right") : last.searchsorted(high)]
    if len(inner) < _NEARLY_ALL * len(index):
        guess, _ = _peeled(x, y, np.concatenate((index[:1], inner, index[-1:] if high > low else inner[:0])))
        keep = y[index] < np.interp(x[index], x[guess], y[guess])
        keep[guess - low] = True
        index = index[keep]
    return _peeled(x, y, index)


def _peeled(x: np.ndarray, y: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the points without those on or above the line between their neighbours, until there are none; slopes)."""
    while True:
        across, up = x[index], y[index]
        slopes = (up[1:] - up[:-1]) / (across[1:] - across[:-1])
        inside = slopes[1:] > slopes[:-1]
        if inside.all():
            return index, slopes
        kept = np.ones(len(index), dtype=bool)
        kept[1:-1] = inside
        index = index[kept]
