"""What to tell a person about a capture list: one function a rule, each naming the figures and the way out."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.engine.capture.request import CaptureRequest
from advisor.engine.versions import version_text
from advisor.records import Finding


def _vllm(request: CaptureRequest) -> str:
    return f"vLLM {version_text(request.version)}"


def _listed(sizes: Iterable[int]) -> str:
    shown = [str(size) for size in sizes]
    return ", ".join(shown) if len(shown) <= 8 else f"{', '.join(shown[:6])} ... {shown[-1]} ({len(shown)})"


def above_batched_tokens(request: CaptureRequest) -> list[Finding]:
    """From 0.11.2: a list's entries above the batch are dropped, with a warning in the server's log."""
    above = sorted(size for size in set(request.sizes or ()) if size > request.max_num_batched_tokens)
    if not above:
        return []
    left = "" if len(above) < len(set(request.sizes or ())) else "; no graph is left"
    return [
        Finding(
            "error",
            "capture-size-above-batched-tokens",
            f"{_vllm(request)} drops capture sizes {_listed(above)}: "
            f"they exceed max_num_batched_tokens {request.max_num_batched_tokens}{left}",
            "leave them out, or raise --max-num-batched-tokens",
        )
    ]


def dropped_in_silence(request: CaptureRequest, kept: tuple[int, ...]) -> list[Finding]:
    """Until 0.11.0: several numbers of --cuda-graph-sizes, filtered without a word."""
    return above_batched_tokens(request) + not_divisible(
        request, tuple(size for size in request.sizes or () if size <= request.max_num_batched_tokens), kept
    )


def outgrown_at_capture(request: CaptureRequest, above: tuple[int, ...]) -> Finding:
    """Until 0.11.0: a list in the compilation config is not checked; the dummy batch then breaks an assertion."""
    return Finding(
        "error",
        "capture-size-above-batched-tokens",
        f"{_vllm(request)} stops while capturing sizes {_listed(above)}: "
        f"they exceed max_num_batched_tokens {request.max_num_batched_tokens}",
        "leave them out, or raise --max-num-batched-tokens",
    )


def not_divisible(request: CaptureRequest, before: tuple[int, ...], after: tuple[int, ...]) -> list[Finding]:
    removed = sorted(set(before) - set(after))
    if not removed:
        return []
    return [
        Finding(
            "warning",
            "capture-size-not-divisible",
            f"sequence parallelism drops capture sizes {_listed(removed)}: "
            f"they are no multiples of the tensor parallel size {request.tensor_parallel}",
            f"give multiples of {request.tensor_parallel}",
        )
    ]


def maximum_below_one(request: CaptureRequest) -> Finding:
    return Finding(
        "error",
        "capture-maximum-below-one",
        f"{_vllm(request)} refuses max_cudagraph_capture_size {request.maximum}: it must be at least 1 when graphs are on",
        "leave it out, or set cudagraph_mode to NONE",
    )


def empty_list(request: CaptureRequest) -> Finding:
    return Finding(
        "error",
        "capture-list-empty",
        f"{_vllm(request)} refuses an empty list of capture sizes when graphs are on",
        "leave it out, or set cudagraph_mode to NONE",
    )


def list_and_maximum(request: CaptureRequest, largest: int) -> Finding:
    return Finding(
        "error",
        "capture-list-and-maximum-disagree",
        f"{_vllm(request)} refuses max_cudagraph_capture_size {request.maximum} "
        f"beside a list whose largest usable size is {largest}",
        "leave max_cudagraph_capture_size out, the list says it",
    )


def truncated(request: CaptureRequest, largest: int) -> Finding:
    cause = "max_num_batched_tokens" if request.max_num_batched_tokens < (request.maximum or 0) else "its default grid"
    return Finding(
        "warning",
        "capture-maximum-truncated",
        f"{_vllm(request)} truncates max_cudagraph_capture_size {request.maximum} to {largest}, by {cause}",
        f"give {largest}, or a list of sizes that ends with {request.maximum}",
    )


def common_multiple(request: CaptureRequest) -> Finding:
    return Finding(
        "error",
        "capture-sizes-without-common-multiple",
        f"{_vllm(request)} refuses {request.speculative_tokens} speculative tokens with sequence parallelism over "
        f"{request.tensor_parallel}: one of {request.query_length} and {request.tensor_parallel} must divide the other",
        "choose another number of speculative tokens, or turn sequence parallelism off",
    )


def emptied(request: CaptureRequest, multiple: int, sizes: tuple[int, ...], *, refuses: bool) -> Finding:
    act = "refuses" if refuses else "finds no FULL decode graph in"
    return Finding(
        "error" if refuses else "warning",
        "capture-list-emptied-by-speculation",
        f"{_vllm(request)} {act} capture sizes {_listed(sizes)} with {request.speculative_tokens} speculative tokens: "
        f"rounded up to multiples of {multiple}, none is left at or below {sizes[-1]}",
        f"give multiples of {multiple}",
    )


def uneven_full_graphs(request: CaptureRequest) -> Finding:
    query = request.query_length
    return Finding(
        "error",
        "full-graphs-break-with-speculation",
        f"{_vllm(request)} starts in mode FULL with {request.speculative_tokens} speculative tokens and dies while serving: "
        f"decode batches are padded to sizes that are no multiples of {query}, which its dispatcher asserts",
        f"set cudagraph_mode to FULL_AND_PIECEWISE, or give multiples of {query} only",
    )
