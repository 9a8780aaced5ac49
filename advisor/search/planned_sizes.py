"""Capture lists for the batches that a server really runs: planned, then checked against what vLLM will make of them. Pure.

What may be captured is asked of engine/capture: every size up to the largest is offered, and what is left of them is legal for
this version, batch, speculation and parallel layout. What a plan is said to do is what its list does after it was written
for the version, read back and captured.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from advisor.engine.capture import CaptureRequest, Coverage, capture_list, coverage
from advisor.engine.capture.request import SEPARATE_MODES
from advisor.errors import InputError
from advisor.search.capture_planner import Curve, Steps, plan
from advisor.search.graph_costs import ASSUMED_COSTS, PRICES, GraphCosts, Prices
from advisor.search.step_times import StepTimes
from advisor.search.written_sizes import as_written, limits_said

# What the lists for the search lack of the least possible step time: fewer graphs start quicker and leave more memory.
_THRIFTY, _FINE = 1.02, 1.001
# A batch that must be covered: it weighs nothing, and running it without a graph is dearer than anything else.
_HARDLY_EVER, _NEVER_MS = 1e-12, 1e9


@dataclass(frozen=True)
class Plan:
    """A list as vLLM captures it, and what it does with the histogram. Times are means over all steps."""

    sizes: tuple[int, ...]
    step_ms: float
    padding: float  # padded tokens over real ones, of the steps that run in graphs
    outside: float  # share of the steps that run without any graph
    not_full: float  # share of the steps that decode in no FULL graph although the mode has some
    gib: float
    seconds: float
    charged_ms: float  # step_ms with memory and start-up charged

    @property
    def graphs(self) -> int:
        return len(self.sizes)


class Planner:
    """Lists for one histogram (tokens -> steps) under one request. Raises InputError where nothing can be captured."""

    def __init__(
        self,
        histogram: Mapping[int, float],
        times: StepTimes,
        request: CaptureRequest,
        costs: GraphCosts = ASSUMED_COSTS,
        prices: Prices = PRICES,
        cover: int | None = None,
    ):
        """`cover`: tokens of a batch that must have a graph, whether it was seen or not.

        `beyond`: share of the steps that are left out, because they hold more tokens than any graph.
        """
        if not request.graphs:
            raise InputError(
                "without CUDA graphs there is nothing to capture", "leave out --enforce-eager and mode NONE"
            )
        self._costs, self._prices, self._times = costs, prices, times
        # The modes with graphs of their own for decode batches came with 0.10.2.
        early = request.version < (0, 10, 2) and request.cudagraph_mode.upper() in SEPARATE_MODES
        self._mode = "PIECEWISE" if early else request.cudagraph_mode.upper()
        self.request = dataclasses.replace(
            request, sizes=None, maximum=None, sizes_by_flag=False, cudagraph_mode=self._mode
        )
        self._cover = None if cover is None else -(-cover // request.query_length) * request.query_length
        # No list has a graph for what neither decodes nor fits into vLLM's own sizes: the same for all of them.
        self._largest = max((self._cover or 0, self.request.operating_point, *capture_list(self.request).sizes))
        every = _batches(histogram, request.query_length)
        self._batches = {tokens: steps for tokens, steps in every.items() if tokens <= self._largest}
        self._steps = sum(self._batches.values())
        if not self._steps:
            raise InputError(f"all steps hold more than {self._largest} tokens, for which nothing is captured")
        self.beyond = 1 - self._steps / sum(every.values())
        tokens = list(self._batches)
        self._graph_ms = dict(zip(tokens, times.graph(tokens).tolist(), strict=True))
        self._eager_ms = dict(zip(tokens, times.eager(tokens).tolist(), strict=True))

    # ------------------------------------------------------------ the curve

    @cached_property
    def legal(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(sizes that decode batches may run in, sizes for larger batches), ascending; the second may be empty."""
        request = self.request
        multiple = request.query_length * request.tensor_parallel
        widest = max(self._cover or 0, *self._batches)
        top = min(-(-widest // multiple) * multiple, request.max_num_batched_tokens)
        every, full = _legal(request, tuple(range(1, top + 1)))
        if self._mode == "FULL_DECODE_ONLY" and not full:
            raise InputError(
                f"{limits_said(request)}: no batch runs in a graph, whatever is captured",
                "set cudagraph_mode to FULL_AND_PIECEWISE",
            )
        if self._mode not in SEPARATE_MODES or not full:  # without FULL graphs all run piecewise
            return every, every
        mixed = () if self._mode == "FULL_DECODE_ONLY" else every
        # What a size is rounded to may itself be no size that can be asked for.
        while (kept := _legal(request, full)[1]) != full:
            full = tuple(sorted(set(kept) & set(full)))
        return full, mixed

    @cached_property
    def curve(self) -> Curve:
        """The best lists, by their own account."""
        rows: dict[tuple[bool, int], list[int]] = {}
        for tokens in self._batches:
            if row := self._row(tokens):
                rows.setdefault(row, []).append(tokens)
        must = self._row(self._cover) if self._cover else None
        ordered = sorted({*rows, must} - {None})
        sizes = tuple(size for _, size in ordered)
        members = [rows.get(row, []) for row in ordered]
        counts = [sum(self._batches[tokens] for tokens in group) or _HARDLY_EVER * self._steps for group in members]
        eager = [sum(self._batches[tokens] * self._eager_ms[tokens] for tokens in group) for group in members]
        if must:
            eager[ordered.index(must)] = _NEVER_MS * self._steps
        boundary = sum(1 for larger, _ in ordered if not larger)
        return plan(Steps(sizes, counts, self._times.graph(sizes).tolist(), eager, boundary))

    @cached_property
    def step_ms(self) -> tuple[float, ...]:
        """Mean time of a step for 0, 1, 2 ... graphs; those that no graph can take are in it."""
        rest = sum(steps * self._eager_ms[tokens] for tokens, steps in self._batches.items() if not self._row(tokens))
        return tuple((total + rest) / self._steps for total in self.curve.total_ms)

    def _row(self, tokens: int) -> tuple[bool, int] | None:
        """(whether it is a size for larger batches than decode ones, smallest size that a batch may run in); None: none."""
        decode, mixed = self.legal
        if decode == mixed:
            return (False, size) if (size := _next(decode, tokens)) else None
        if tokens <= self.request.operating_point and (size := _next(decode, tokens)):
            return False, size
        return (True, size) if (size := _next(mixed, tokens)) else None

    @cached_property
    def ideal_ms(self) -> float:
        """Mean time of a step if each ran in a graph of its very size."""
        return sum(self._batches[tokens] * ms for tokens, ms in self._graph_ms.items()) / self._steps

    @cached_property
    def best(self) -> int:
        """The number of graphs with the least charged time."""
        charged = [self._charged(ms, k) for k, ms in enumerate(self.step_ms)]
        return max(1, charged.index(min(charged)))

    def fewest_within(self, factor: float) -> int:
        """The least number of graphs whose steps take at most `factor` times the least possible."""
        return next(k for k, ms in enumerate(self.step_ms) if ms <= self.step_ms[-1] * factor)

    # ------------------------------------------------------------ lists

    @cached_property
    def default(self) -> Plan:
        """What vLLM captures when it is asked for nothing."""
        return self.judged(capture_list(self.request).sizes, self.request)

    def at(self, graphs: int) -> Plan:
        """The best list of at most so many graphs, as it will be captured."""
        return self.of(self.curve.sizes(max(1, graphs)))

    def of(self, sizes: Sequence[int]) -> Plan:
        """Any list that is asked for, as it will be captured. Raises InputError where vLLM refuses it."""
        if not sizes:
            return self.judged((), self.request)
        asked = as_written(self.request, sizes)
        captured = capture_list(asked)
        if captured.refused:
            raise InputError(captured.findings[0].message, captured.findings[0].fix)
        return self.judged(captured.sizes, asked)

    def judged(self, sizes: Sequence[int], asked: CaptureRequest) -> Plan:
        """What the captured `sizes` do with the histogram."""
        covered = coverage(sizes, asked) if sizes else None
        total = padded = real = outside = not_full = 0.0
        for tokens, steps in self._batches.items():
            size, full = self._runs_in(tokens, tuple(sizes), covered)
            not_full += 0 if full else steps
            if size is None:
                total, outside = total + steps * self._eager_ms[tokens], outside + steps
            else:
                total += steps * float(self._times.graph([size])[0])
                padded, real = padded + steps * (size - tokens), real + steps * tokens
        mean, gib, seconds = total / self._steps, self._costs.gib * len(sizes), self._costs.seconds * len(sizes)
        return Plan(
            tuple(sizes), mean, padded / real if real else 0.0, outside / self._steps, not_full / self._steps,
            gib, seconds, self._charged(mean, len(sizes)),
        )  # fmt: skip

    def _runs_in(self, tokens: int, sizes: tuple[int, ...], covered: Coverage | None) -> tuple[int | None, bool]:
        """(the size that a batch runs in, whether nothing better was to be had: a FULL graph for a decode batch)."""
        decodes = tokens <= self.request.operating_point
        decode_only = self._mode == "FULL_DECODE_ONLY"
        if covered is None or (decode_only and not decodes):
            return None, not decodes
        if decodes and tokens in covered.padded:
            return covered.padded[tokens], True
        piecewise = None if decode_only else _next(sizes, tokens)
        decode, mixed = self.legal
        return piecewise, not decodes or decode == mixed

    def _charged(self, step_ms: float, graphs: int) -> float:
        return step_ms * (1 + self._prices.share(self._costs.gib * graphs, self._costs.seconds * graphs))


def planned_lists(
    histogram: Mapping[int, float],
    times: StepTimes,
    request: CaptureRequest,
    costs: GraphCosts = ASSUMED_COSTS,
    prices: Prices = PRICES,
) -> tuple[tuple[int, ...], ...]:
    """A handful of lists for the search, best first by charged time; then one with few graphs, one with hardly any padding.

    Each differs from the others and from vLLM's own list. Raises InputError where nothing can be captured.
    """
    planner = Planner(histogram, times, request, costs, prices)
    counts = (planner.best, planner.fewest_within(_THRIFTY), planner.fewest_within(_FINE))
    lists = dict.fromkeys(planner.at(count).sizes for count in counts)
    return tuple(sizes for sizes in lists if sizes and sizes != planner.default.sizes)


def _batches(histogram: Mapping[int, float], query: int) -> dict[int, float]:
    """Ascending, each batch rounded up to whole requests."""
    found: dict[int, float] = {}
    for tokens, steps in sorted(histogram.items()):
        whole = -(-tokens // query) * query
        found[whole] = found.get(whole, 0.0) + steps
    return found


def _legal(request: CaptureRequest, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(sizes captured of those offered, those of FULL graphs for decode batches). Raises InputError where vLLM refuses all."""
    if not sizes:
        return (), ()
    offered = dataclasses.replace(request, sizes=sizes)
    found = capture_list(offered)
    if found.refused or not found.sizes:
        raise InputError(found.findings[0].message, found.findings[0].fix)
    return found.sizes, coverage(found.sizes, offered).full_decode_sizes


def _next(sizes: Sequence[int], tokens: int) -> int | None:
    place = bisect_left(sizes, tokens)
    return sizes[place] if place < len(sizes) else None
