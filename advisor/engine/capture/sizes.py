"""The capture list that vLLM makes of a request, from 0.9.0 to 0.33.0.

Facts: `VllmConfig._set_cudagraph_sizes`, `CompilationConfig.init_with_cudagraph_sizes` (until 0.11.0) and
`CompilationConfig.adjust_cudagraph_sizes_for_spec_decode` (from 0.11.2) of each release; tests/data/capture holds what they
return when executed. Comments name the first release read that behaves so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from advisor.engine.capture.findings import (
    above_batched_tokens,
    common_multiple,
    dropped_in_silence,
    emptied,
    empty_list,
    list_and_maximum,
    maximum_below_one,
    not_divisible,
    outgrown_at_capture,
    truncated,
    uneven_full_graphs,
)
from advisor.engine.capture.request import SEPARATE_MODES, CaptureList, CaptureRequest
from advisor.records import Finding

_COARSE = 256  # from 0.11.2 the default grid is coarser from here on


def capture_list(request: CaptureRequest) -> CaptureList:
    """The sizes captured, or an error finding and `refused` where vLLM stops. Raises nothing."""
    if request.old_engine:
        return _old_engine(request)
    configured = _early(request) if request.version < (0, 11, 2) else _late(request)
    if configured.refused or not request.graphs:
        return configured
    found = _rounded(request, configured)
    if not found.refused and _breaks_while_serving(request, found.sizes):
        return replace(found, findings=(*found.findings, uneven_full_graphs(request)))
    return found


def next_size(sizes: Sequence[int], tokens: int) -> int | None:
    """The smallest of the ascending sizes that holds the batch."""
    place = bisect_left(sizes, tokens)
    return sizes[place] if place < len(sizes) else None


def vllm_steps(version: tuple[int, ...], top: int) -> tuple[int, ...]:
    """The sizes of vLLM's own grid up to `top`: 1, 2, 4 and steps of 8, of 16 from 256 on since 0.11.2."""
    steps = range(8, top + 1, 8) if version < (0, 11, 2) else sorted(_grid(top))
    return tuple(size for size in (1, 2, 4, *steps) if size <= top)


def _refuse(finding: Finding, configured: tuple[int, ...] = ()) -> CaptureList:
    top = configured[-1] if configured else 0
    return CaptureList((), 0, (finding,), configured, top, refused=True)


def _settled(sizes: tuple[int, ...], findings: list[Finding]) -> CaptureList:
    top = sizes[-1] if sizes else 0
    return CaptureList(tuple(sorted(set(sizes))), top, tuple(findings), sizes, top)


# ---------------------------------------------------------------- until 0.11.0


def _early(request: CaptureRequest) -> CaptureList:
    if request.enforce_eager and (request.sizes is None or request.sizes_by_flag):
        return _settled((), [])
    findings: list[Finding] = []
    if request.sizes is None:
        top = request.maximum if request.maximum is not None else _early_top(request)
        sizes = _within(request, _parallel(request, (1, 2, 4, *range(8, top + 1, 8))))
    elif request.sizes_by_flag:
        sizes = _within(request, _parallel(request, tuple(sorted(request.sizes))))
        findings = dropped_in_silence(request, sizes)
    else:
        # A list in the compilation config is taken as it is: neither the batch nor tensor parallelism is looked at.
        sizes = tuple(sorted(set(request.sizes)))
        above = _captured_above(request, sizes)
        if above:
            return _refuse(outgrown_at_capture(request, above), sizes)
    settled = _settled(sizes, findings)
    if request.graphs:
        return settled
    return replace(settled, sizes=(), maximum=0)


def _old_engine(request: CaptureRequest) -> CaptureList:
    """V0: up to the first size of the grid that holds max_num_seqs; --cuda-graph-sizes is not read, a configured list is taken."""
    if request.sizes is not None and not request.sizes_by_flag:
        settled = _settled(tuple(sorted(set(request.sizes))), [])
    elif request.enforce_eager:
        return _settled((), [])
    else:
        grid = _parallel(request, (1, 2, 4, *range(8, 8193, 8)))
        top = next_size(grid, request.max_num_seqs) or grid[-1]
        settled = _settled(tuple(size for size in grid if size <= top), [])
    return settled if request.graphs else replace(settled, sizes=(), maximum=0)


def _early_top(request: CaptureRequest) -> int:
    return 512 if request.version < (0, 10, 0) else min(2 * request.max_num_seqs, 512)


def _within(request: CaptureRequest, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size <= request.max_num_batched_tokens)


def _captured_above(request: CaptureRequest, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes whose dummy batch would break the runner's own assertion on max_num_batched_tokens."""
    if not request.graphs:
        return ()
    widest = request.max_num_seqs * request.query_length
    decode_only = request.cudagraph_mode.upper() == "FULL_DECODE_ONLY" and request.version >= (0, 10, 2)
    return tuple(
        size for size in sizes if size > request.max_num_batched_tokens and (size <= widest or not decode_only)
    )


# ---------------------------------------------------------------- from 0.11.2


def _late(request: CaptureRequest) -> CaptureList:
    if not request.graphs:
        return _settled((), [])
    inferred = request.maximum is None
    top = min(_late_top(request) if inferred else request.maximum or 0, request.max_num_batched_tokens)
    if top < 1:
        return _refuse(maximum_below_one(request))
    findings: list[Finding] = []
    if request.sizes is None:
        sizes = _parallel(request, _default_list(request, top, inferred))
    elif not request.sizes:
        return _refuse(empty_list(request))
    else:
        within = _within(request, tuple(sorted(set(request.sizes))))
        findings += above_batched_tokens(request)
        sizes = _parallel(request, within)
        findings += not_divisible(request, within, sizes)
    largest = sizes[-1] if sizes else 0
    if request.maximum is not None and request.maximum != largest:
        if request.sizes is not None:
            return _refuse(list_and_maximum(request, largest))
        findings.append(truncated(request, largest))
    return _settled(sizes, findings)


def _late_top(request: CaptureRequest) -> int:
    # 0.13.0 counts the draft tokens.
    factor = request.query_length if request.version >= (0, 13, 0) else 1
    return min(2 * request.max_num_seqs * factor, _ceiling(request))


def _ceiling(request: CaptureRequest) -> int:
    """1024 on compute capability 10.x from 0.28.0, 512 elsewhere."""
    datacentre_blackwell = request.compute_capability is not None and request.compute_capability[0] == 10
    return 1024 if request.version >= (0, 28, 0) and datacentre_blackwell else 512


def _default_list(request: CaptureRequest, top: int, inferred: bool) -> tuple[int, ...]:
    sizes = {size for size in (1, 2, 4) if size <= top}
    if request.version >= (0, 17, 1) and request.performance_mode == "interactivity":
        sizes = set(range(1, min(top, 32) + 1))
    sizes |= _grid(top)
    if request.version >= (0, 20, 2) and request.max_num_batched_tokens <= top:
        sizes.add(request.max_num_batched_tokens)
    if inferred:
        sizes |= {size for size in _decode_sizes(request) if size <= request.max_num_batched_tokens}
    return tuple(sorted(sizes))


def _grid(top: int) -> set[int]:
    """Steps of 8 below 256 and of 16 from there, up to and with `top`."""
    return {*range(8, min(top + 1, _COARSE), 8), *range(_COARSE, top + 1, 16)}


def _decode_sizes(request: CaptureRequest) -> set[int]:
    """Sizes that exactly fit decode batches: with speculation from 0.29.0, max_num_seqs itself from 0.31.0."""
    top, query = _late_top(request), request.query_length
    if query > 1 and request.version >= (0, 29, 0):
        most = min(request.max_num_seqs, _ceiling(request))
        counts = {count for count in (1, 2, 4) if count <= most} | _grid(most) | {most}
        return {count * query for count in counts if count * query <= top}
    if query == 1 and request.version >= (0, 31, 0) and request.max_num_seqs <= top:
        return {request.max_num_seqs}
    return set()


def _parallel(request: CaptureRequest, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sequence parallelism keeps multiples of the tensor parallel size only; 0.32.0 has neither any more."""
    if not _sequence_parallel(request):
        return sizes
    return tuple(size for size in sizes if size % request.tensor_parallel == 0)


def _sequence_parallel(request: CaptureRequest) -> bool:
    return request.sequence_parallel and request.tensor_parallel > 1 and request.version < (0, 32, 0)


# ---------------------------------------------------------------- in the model runner


def _rounded(request: CaptureRequest, configured: CaptureList) -> CaptureList:
    """Sizes rounded up to multiples of the query length, without those that then exceed the largest one."""
    query = request.query_length
    if query == 1:
        return configured
    if not _runner_rounds(request):
        if _second_runner_finds_none(request, configured):
            finding = emptied(request, query, configured.sizes, refuses=False)
            return replace(configured, findings=(*configured.findings, finding))
        return configured
    multiple = query
    if _sequence_parallel(request):
        multiple = max(query, request.tensor_parallel)
        if multiple % query or multiple % request.tensor_parallel:
            return _refuse(common_multiple(request), configured.configured)
    if not configured.sizes:
        return configured
    multiples = {_round_up(size, multiple) for size in configured.sizes}
    rounded = sorted(size for size in multiples if size <= configured.maximum)
    if not rounded and request.version >= (0, 12, 0) and multiple <= configured.maximum:
        rounded = [multiple]
    if not rounded:
        refuses = request.version >= (0, 12, 0)
        finding = emptied(request, multiple, configured.sizes, refuses=refuses)
        if refuses:
            return _refuse(finding, configured.configured)
        return replace(configured, findings=(*configured.findings, finding))
    return replace(configured, sizes=tuple(rounded), maximum=rounded[-1])


def _second_runner_finds_none(request: CaptureRequest, configured: CaptureList) -> bool:
    """From 0.25.1 V2 accepts a list without any decode size and then decodes without FULL graphs."""
    separate = request.cudagraph_mode.upper() in SEPARATE_MODES
    return (
        request.runner_v2
        and request.version >= (0, 25, 1)
        and separate
        and bool(configured.sizes)
        and request.query_length > configured.maximum
    )


def _runner_rounds(request: CaptureRequest) -> bool:
    version, mode = request.version, request.cudagraph_mode.upper()
    if version < (0, 11, 2):
        return False
    if request.runner_v2:
        # 0.20.2: with FULL decode graphs; 0.21.0 to 0.24.0: always; from 0.25.1 V2 rounds its decode graphs apart from the list.
        return (0, 21, 0) <= version < (0, 25, 1) or ((0, 20, 2) <= version < (0, 21, 0) and mode != "PIECEWISE")
    if version < (0, 20, 2):
        return mode in SEPARATE_MODES
    return mode != "PIECEWISE"


def _breaks_while_serving(request: CaptureRequest, sizes: tuple[int, ...]) -> bool:
    """0.12.0 to 0.17.1, V1, mode FULL: the dispatcher asserts that a decode batch is padded to a multiple of its queries."""
    query = request.query_length
    if request.runner_v2 or request.cudagraph_mode.upper() != "FULL" or query == 1:
        return False
    if not (0, 12, 0) <= request.version < (0, 18, 1):
        return False
    batches = (next_size(sizes, tokens) for tokens in range(query, request.operating_point + 1, query))
    return any(size is not None and size % query for size in batches)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
