"""An engine whose core is stepped in its own process (advisor/target/stepped_engine.py): its environment and its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.engine.logs import parse_active
from advisor.engine.startup import parse_startup
from advisor.target_process import scrubbed_environment

START_S = 1800.0  # kernels may be built in a first start
_RESOLVED = (
    "compilation_mode", "cudagraph_mode", "capture_sizes", "pipelined", "max_num_seqs", "max_num_batched_tokens",
    "max_model_len", "dtype", "kv_cache_dtype", "prefix_caching", "kv_tokens", "threads",
)  # fmt: skip


def engine_environment(inherited: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """For an engine whose core is in the process that looks at it."""
    return scrubbed_environment(inherited, {**added, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"})


def what_started(started: Mapping[str, Any], log_text: str) -> dict[str, Any]:
    """`resolved`: what runs; `start`: what the start went into. The engine's own words (`started`) first, then its log's."""
    active = parse_active(log_text)
    start = parse_startup(log_text, started["start_s"] - started["imports_s"], active, forked=True)
    return {
        "resolved": {
            **{name: started.get(name) for name in _RESOLVED},
            "attention_backends": list(active.attention_backends),
            "flash_attention_version": active.flash_attention_version,
            "model_runner": active.model_runner,
        },
        "start": {
            "start_s": started["start_s"], "imports_s": started["imports_s"], "load_s": start.load_s,
            "compile_s": start.compile_s, "capture_s": start.capture_s, "kernels_s": start.kernels_s, "rest_s": start.rest_s,
            "engine_init_s": active.engine_init_s, "cache": start.cache, "graph_memory_gib": active.graph_memory_gib,
        },
    }  # fmt: skip
