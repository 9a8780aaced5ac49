"""Which decode batches run in a FULL graph, and the shortest change of the list that covers those that do not.

Facts: `v1/cudagraph_dispatcher.py` (model runner V1) and `v1/worker/gpu/cudagraph_utils.py` (V2) of each release, executed
with lists of sizes; tests/data/capture holds what they answer. A decode batch is uniform: every request has the query length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from advisor.engine.capture.request import SEPARATE_MODES, CaptureRequest, Coverage
from advisor.engine.capture.sizes import capture_list, next_size

Lookup = Callable[[int], int | None]  # tokens of a decode batch -> size of the FULL graph that runs it


def coverage(sizes: Sequence[int], request: CaptureRequest) -> Coverage:
    """Coverage by the captured `sizes` (CaptureList.sizes) of every decode batch up to the operating point."""
    found = _coverage(tuple(sorted(set(sizes))), request)
    return replace(found, suggestion=_suggestion(found, request))


def _coverage(sizes: tuple[int, ...], request: CaptureRequest) -> Coverage:
    full_sizes = _full_sizes(sizes, request)
    lookup = _lookup(sizes, full_sizes, request)
    query, top = request.query_length, request.operating_point
    padded: dict[int, int] = {}
    uncovered: list[int] = []
    for tokens in range(query, top + 1, query):
        size = lookup(tokens)
        if size is None:
            uncovered.append(tokens)
        else:
            padded[tokens] = size
    return Coverage(max(padded, default=0), full_sizes, top, tuple(_ranges(uncovered, query)), padded)


def _ranges(values: Iterable[int], step: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for value in values:
        if ranges and ranges[-1][1] == value - step:
            ranges[-1] = (ranges[-1][0], value)
        else:
            ranges.append((value, value))
    return ranges


def _mode(request: CaptureRequest) -> str:
    """NONE, PIECEWISE, FULL or one of SEPARATE_MODES, as far as the version has them."""
    mode = request.cudagraph_mode.upper()
    if not request.graphs:
        return "NONE"
    if request.old_engine:
        return mode
    return "PIECEWISE" if mode in SEPARATE_MODES and request.version < (0, 10, 2) else mode


def _full_sizes(sizes: tuple[int, ...], request: CaptureRequest) -> tuple[int, ...]:
    """Sizes of the FULL graphs that a decode batch could use."""
    mode, query = _mode(request), request.query_length
    widest = request.max_num_seqs * query
    if mode == "FULL" or request.old_engine:
        return sizes
    if mode not in SEPARATE_MODES:
        return ()
    if request.runner_v2 and request.version >= (0, 25, 1):
        # V2 rounds each size up for its decode graphs and keeps the list as it is for the piecewise ones.
        rounded = {-(-size // query) * query for size in sizes}
        return tuple(sorted(size for size in rounded if size <= min(widest, sizes[-1])))
    if request.runner_v2 and request.version < (0, 17, 1):
        # The first V2 runner: one token a request, and a list bounded by the batch that its mode can hold.
        bound = request.max_num_seqs if mode == "FULL_DECODE_ONLY" else request.max_num_batched_tokens
        return tuple(size for size in sizes if size <= bound) if _first_v2_decodes(request, mode) else ()
    return tuple(size for size in sizes if query <= size <= widest)


def _first_v2_decodes(request: CaptureRequest, mode: str) -> bool:
    """Until 0.14.1 mode FULL_AND_PIECEWISE runs any batch in a FULL graph; otherwise one with draft tokens counts as mixed."""
    return request.query_length == 1 or (mode == "FULL_AND_PIECEWISE" and request.version < (0, 15, 1))


def _lookup(sizes: tuple[int, ...], full_sizes: tuple[int, ...], request: CaptureRequest) -> Lookup:
    mode = _mode(request)
    if mode == "FULL":
        return lambda tokens: _full_mode(next_size(sizes, tokens), request)
    if request.runner_v2 and (mode == "FULL_DECODE_ONLY" or request.version >= (0, 29, 0)):
        return lambda tokens: next_size(full_sizes, tokens)
    # The batch is padded first, to the next size of any graph; only then is a FULL graph of that size looked for.
    every = tuple(sorted({*sizes, *full_sizes}))
    full = set(full_sizes)

    def padded_first(tokens: int) -> int | None:
        size = next_size(every, tokens)
        return size if size in full else None

    return padded_first


def _full_mode(size: int | None, request: CaptureRequest) -> int | None:
    """Mode FULL has one set of graphs for all batches. V1 of 0.12.0 to 0.17.1 looks a decode batch up as a uniform one."""
    if size is None or request.runner_v2 or request.query_length == 1:
        return size
    if not (0, 12, 0) <= request.version < (0, 18, 1):
        return size
    if size % request.query_length:  # its own assertion fails
        return None
    requests = size // request.query_length
    if (
        request.version >= (0, 17, 1) and requests < request.max_num_seqs
    ):  # captured with more requests than are asked for
        return None
    return size


# ---------------------------------------------------------------- suggestion


def _suggestion(found: Coverage, request: CaptureRequest) -> tuple[int, ...] | None:
    """The list with the fewest sizes added that leaves nothing uncovered, None where none is needed or none can do it.

    A gap closes from its upper end: a size there takes every smaller batch of the gap, padded.
    """
    configured = _starting_list(request)
    while found.uncovered_decode_batches:
        added = {last for _, last in found.uncovered_decode_batches} - set(configured)
        if not added:
            return None
        configured = tuple(sorted({*configured, *added}))
        asked = replace(request, sizes=configured, maximum=None, sizes_by_flag=False)
        found_before, found = found, _coverage(capture_list(asked).sizes, asked)
        if found.uncovered_decode_batches == found_before.uncovered_decode_batches:
            return None
        if not found.uncovered_decode_batches:
            return configured
    return None


def _starting_list(request: CaptureRequest) -> tuple[int, ...]:
    """The list to add to: the configured one; where nothing of it is usable, the one without what vLLM refuses."""
    attempts = (request, replace(request, maximum=None), replace(request, maximum=None, sizes=None))
    return next((found.configured for found in map(capture_list, attempts) if found.configured), ())
