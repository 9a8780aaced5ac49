"""The shortest words that put every decode batch into a FULL graph, without gaps that pad a small batch to a large graph.

In order: one number where vLLM fills the list up to it by itself; the person's own list with vLLM's steps up to the largest
batch; where that list is long, a slightly larger max_num_seqs on vLLM's grid with the same number for the list. Each is tried
with the rules of the capture list before it is named.
"""

from __future__ import annotations

from dataclasses import replace

from advisor.engine.capture.coverage import coverage
from advisor.engine.capture.request import CaptureRequest
from advisor.engine.capture.sizes import capture_list, vllm_steps

FLAGS_SINCE = (0, 11, 2)  # --cudagraph-capture-sizes and --max-cudagraph-capture-size; --cuda-graph-sizes before
_READABLE = 16  # sizes in a list that a person still reads


def remedy(request: CaptureRequest) -> str | None:
    """Options for the command line that cover all decode batches of the request; None where no list does."""
    if request.old_engine:
        return "leave the list out, the V0 engine makes one that fits"
    top = request.operating_point
    single = "--max-cudagraph-capture-size" if request.version >= FLAGS_SINCE else "--cuda-graph-sizes"
    for number in dict.fromkeys((top, _on_grid(request, top))):
        if request.sizes is None and _covers(replace(request, maximum=number)):
            return f"{single} {number}"
    listed = _stepped(request)
    if listed is None or len(listed) <= _READABLE:
        return _list_words(request, listed)
    more = _on_grid(request, top)
    rounded = replace(request, max_num_seqs=more, maximum=more, sizes=None)
    if request.query_length == 1 and request.sizes is None and _covers(rounded):
        return f"--max-num-seqs {more} {single} {more}"
    return _list_words(request, listed)


def _list_words(request: CaptureRequest, sizes: tuple[int, ...] | None) -> str | None:
    flag = "--cudagraph-capture-sizes" if request.version >= FLAGS_SINCE else "--cuda-graph-sizes"
    return None if sizes is None else f"{flag} {' '.join(map(str, sizes))}"


def _covers(request: CaptureRequest) -> bool:
    found = capture_list(request)
    whole = not found.refused and not any(finding.severity == "error" for finding in found.findings)
    truncated = request.maximum is not None and found.configured_maximum != request.maximum
    return whole and not truncated and not coverage(found.sizes, request).uncovered_decode_batches


def _on_grid(request: CaptureRequest, tokens: int) -> int:
    return next(step for step in vllm_steps(request.version, 2 * tokens + 16) if step >= tokens)


def _stepped(request: CaptureRequest) -> tuple[int, ...] | None:
    """The list as it is, and vLLM's steps of decode batches from its end to the largest batch; else what coverage suggests."""
    configured = capture_list(replace(request, maximum=None)).configured
    top, query = request.operating_point, request.query_length
    counts = (*vllm_steps(request.version, top // query), top // query)
    batches = {count * query for count in counts if count * query > max(configured, default=0)}
    listed = tuple(sorted({*configured, *batches}))
    by_flag = request.version < FLAGS_SINCE
    if len(listed) > 1 and _covers(replace(request, sizes=listed, maximum=None, sizes_by_flag=by_flag)):
        return listed
    return coverage(capture_list(request).sizes, request).suggestion
