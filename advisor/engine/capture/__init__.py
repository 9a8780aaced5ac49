"""The capture list of a command, and the decode batches that it covers: the names that the rest of the advisor uses."""

from __future__ import annotations

from dataclasses import replace

from advisor.engine.capture.coverage import coverage
from advisor.engine.capture.remedy import remedy
from advisor.engine.capture.request import CaptureList, CaptureRequest, Coverage
from advisor.engine.capture.sizes import capture_list

__all__ = ["CaptureList", "CaptureRequest", "Coverage", "capture_list", "coverage", "remedy", "with_model_default"]


def with_model_default(request: CaptureRequest, architecture: str | None) -> CaptureRequest:
    """The request with the larger default list that vLLM itself sets for GPT-OSS from 0.10.2 (`models/config.py`).

    From 0.11.2 it is a maximum of 1024, set only where the person gave neither list nor maximum. Before, it replaces a single
    number of --cuda-graph-sizes, the default included, that is below 1024 (0.10.2) or 992 (0.11.0).
    """
    if architecture != "GptOssForCausalLM" or request.version < (0, 10, 2) or request.sizes is not None:
        return request
    if request.version >= (0, 11, 2):
        return request if request.maximum is not None else replace(request, maximum=1024)
    top = 992 if request.version >= (0, 11, 0) else 1024
    if request.maximum is not None and request.maximum >= top:
        return request
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16))
    usable = tuple(size for size in sizes if size <= request.max_num_batched_tokens)
    return replace(request, sizes=usable, sizes_by_flag=True)
