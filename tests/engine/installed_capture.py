"""Run by the interpreter that has vLLM, not by pytest: its own capture functions, imported, on one JSON case a line.

Reads cases from stdin (fields of CaptureRequest, and `graphs`), writes the version and then one result a line, in the shape
of tools/release_capture.py. Model runner V1 only: V2 wants a GPU runner around it.
"""

from __future__ import annotations

import json
import logging
import sys
from types import SimpleNamespace
from typing import Any

logging.disable(logging.CRITICAL)

import vllm  # noqa: E402
from vllm.config.compilation import CompilationConfig, CUDAGraphMode  # noqa: E402
from vllm.config.vllm import VllmConfig  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher  # noqa: E402


def configured(case: dict[str, Any]) -> SimpleNamespace:
    """What VllmConfig holds when it works out the sizes, with a real compilation config."""
    query = 1 + case["speculative_tokens"]
    given = {
        "cudagraph_mode": case["cudagraph_mode"],
        "cudagraph_capture_sizes": case["sizes"],
        "max_cudagraph_capture_size": case["maximum"],
    }
    drafts = SimpleNamespace(
        num_speculative_tokens=case["speculative_tokens"], uses_dynamic_speculative_decoding=lambda: False
    )
    return SimpleNamespace(
        compilation_config=CompilationConfig(**{name: value for name, value in given.items() if value is not None}),
        model_config=SimpleNamespace(enforce_eager=case["enforce_eager"]),
        parallel_config=SimpleNamespace(tensor_parallel_size=case["tensor_parallel"]),
        scheduler_config=SimpleNamespace(
            max_num_seqs=case["max_num_seqs"], max_num_batched_tokens=case["max_num_batched_tokens"]
        ),
        speculative_config=drafts if query > 1 else None,
        lora_config=None,
        performance_mode=case["performance_mode"],
        uniform_decode_query_len=query,
        num_speculative_tokens=query - 1,
    )


def dispatched(case: dict[str, Any], config: SimpleNamespace) -> tuple[list[int], dict[int, int]]:
    query, mode = 1 + case["speculative_tokens"], config.compilation_config.cudagraph_mode
    dispatcher = object.__new__(CudagraphDispatcher)
    dispatcher.vllm_config, dispatcher.compilation_config = config, config.compilation_config
    dispatcher.uniform_decode_query_len, dispatcher.specialize_lora_count = query, False
    dispatcher.cudagraph_keys = {CUDAGraphMode.PIECEWISE: set(), CUDAGraphMode.FULL: set()}
    dispatcher.initialize_cudagraph_keys(mode, query)
    padded = {}
    for count in range(1, min(case["max_num_seqs"], case["max_num_batched_tokens"] // query) + 1):
        ran, key = dispatcher.dispatch(num_tokens=count * query, uniform_decode=True)
        if ran == CUDAGraphMode.FULL:
            padded[count * query] = key.num_tokens
    return sorted({key.num_tokens for key in dispatcher.cudagraph_keys[CUDAGraphMode.FULL]}), padded


def run(case: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    capability = case["compute_capability"] or (0, 0)
    type(current_platform).is_device_capability_family = classmethod(
        lambda _cls, family, _device=0: capability[0] * 10 == family
    )
    config = configured(case)
    try:
        VllmConfig._set_cudagraph_sizes(config)
        compilation = config.compilation_config
        result["configured"] = list(compilation.cudagraph_capture_sizes)
        if case["graphs"]:
            mode = compilation.cudagraph_mode
            if mode.decode_mode() == CUDAGraphMode.FULL and case["speculative_tokens"]:
                compilation.adjust_cudagraph_sizes_for_spec_decode(1 + case["speculative_tokens"])
            result["sizes"] = list(compilation.cudagraph_capture_sizes)
            if result["sizes"]:
                result["graphs"], result["padded"] = dispatched(case, config)
    except (AssertionError, ValueError) as error:
        result["error"] = type(error).__name__
    return result


print(json.dumps({"version": vllm.__version__, "folder": vllm.__path__[0]}))
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))))
