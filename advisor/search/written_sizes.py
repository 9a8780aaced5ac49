"""A capture list in the words of a vLLM version, and what those words ask for. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.engine.capture import CaptureRequest
from advisor.engine.options import ServeOptions
from advisor.engine.rules.requested import read_request
from advisor.engine.versions import version_text
from advisor.engine.writing.spelling import spell


def as_written(request: CaptureRequest, sizes: Sequence[int]) -> CaptureRequest:
    """The request of a command that carries the list in its version's own spelling, read back from that spelling."""
    read = read_request(spelled(request.version, sizes), {}, request.version)
    return dataclasses.replace(request, sizes=read.sizes, maximum=read.maximum, sizes_by_flag=read.sizes_by_flag)


def spelled(version: tuple[int, ...], sizes: Sequence[int]) -> ServeOptions:
    """The options that ask a version for the list. Raises InputError where it has no words for it."""
    return spell({"cudagraph_capture_sizes": list(sizes)}, version).options


def limits_said(request: CaptureRequest) -> str:
    """What a plan depends on, in words."""
    speculative = f", {request.speculative_tokens} speculative tokens" if request.speculative_tokens else ""
    return (
        f"vLLM {version_text(request.version)}, {request.cudagraph_mode}, max_num_seqs {request.max_num_seqs}, "
        f"max_num_batched_tokens {request.max_num_batched_tokens}{speculative}"
    )
