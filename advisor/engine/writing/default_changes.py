"""Defaults that changed between vLLM releases and change how a server performs: what a migration must tell.

How to extend: one more entry of CHANGES. `pinned_by` names the decisions (spelling_table), options or variables that make the
default of no effect when the person gives one of them. Facts: sources of the releases in versions.py; `since` is the first
release read that has the new default, so that the change may have come in a release just before it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

Version = tuple[int, ...]


@dataclass(frozen=True)
class DefaultChange:
    setting: str
    since: Version
    before: str
    after: str
    pinned_by: tuple[str, ...] = ()
    keep: str = ""  # what to give to keep the old behaviour, in the words of the new version, where there is a way
    kept_by: tuple[str, Any] | None = None  # the same as a setting, as spell() takes them: becomes `keep` for a target
    last_word: bool = False  # earlier changes of the same setting do not matter any more


_SIZES = ("cudagraph_capture_sizes", "enforce_eager")
_TOP = (*_SIZES, "max_cudagraph_capture_size")
_GRAPHS = ("cudagraph_mode", "enforce_eager", "optimization_level")
CHANGES: tuple[DefaultChange, ...] = (
    DefaultChange(
        "capture sizes",
        (0, 10, 0),
        "up to 512",
        "up to the smaller of 2 x max_num_seqs and 512",
        _TOP,
        kept_by=("max_cudagraph_capture_size", 512),
    ),
    DefaultChange(
        "CUDA-graph mode",
        (0, 11, 0),
        "PIECEWISE",
        "FULL_AND_PIECEWISE: decode batches run in full graphs",
        _GRAPHS,
        kept_by=("cudagraph_mode", "PIECEWISE"),
    ),
    DefaultChange("engine", (0, 11, 0), "V1, V0 for what V1 cannot do", "V1 only"),
    DefaultChange("capture sizes", (0, 11, 2), "steps of 8", "steps of 8 below 256 and of 16 from there", _SIZES),
    DefaultChange(
        "attention backend",
        (0, 11, 2),
        "one that cannot be used is replaced with a warning",
        "one that cannot be used is an error",
    ),
    DefaultChange(
        "compile settings",
        (0, 12, 0),
        "set one by one",
        "set by the optimization level, whose default is 2",
        ("optimization_level", "enforce_eager"),
    ),
    DefaultChange(
        "capture sizes",
        (0, 13, 0),
        "up to 2 x max_num_seqs",
        "up to 2 x max_num_seqs x (1 + speculative tokens), at most 512",
        _TOP,
    ),
    DefaultChange(
        "asynchronous scheduling",
        (0, 14, 1),
        "off",
        "on, where nothing given stands against it",
        ("async_scheduling",),
        kept_by=("async_scheduling", False),
    ),
    DefaultChange(
        "FlashInfer autotuning", (0, 16, 0), "none", "at start, from optimization level 1 on", ("optimization_level",)
    ),
    DefaultChange(
        "all-reduce fused with RMSNorm",
        (0, 17, 1),
        "off",
        "on with tensor parallelism on SM 9.0 and 10.x where FlashInfer is there",
        ("optimization_level",),
    ),
    DefaultChange(
        "cascade attention", (0, 18, 1), "on", "off", ("cascade_attention",), kept_by=("cascade_attention", True)
    ),
    DefaultChange(
        "CUDA-graph memory",
        (0, 20, 2),
        "not counted when the KV cache is sized",
        "estimated and taken off the KV cache",
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",),
        kept_by=("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0"),
    ),
    DefaultChange(
        "capture sizes",
        (0, 20, 2),
        "without max_num_batched_tokens",
        "with max_num_batched_tokens where it is not above the top",
        _SIZES,
    ),
    DefaultChange(
        "model runner",
        (0, 22, 1),
        "V1",
        "chosen by vLLM: V2 for some models",
        ("VLLM_USE_V2_MODEL_RUNNER",),
        kept_by=("VLLM_USE_V2_MODEL_RUNNER", "0"),
    ),
    DefaultChange(
        "breakable CUDA graphs",
        (0, 23, 0),
        "only with VLLM_USE_BREAKABLE_CUDAGRAPH",
        "on for some new architectures, without compilation",
        ("VLLM_USE_BREAKABLE_CUDAGRAPH",),
        kept_by=("VLLM_USE_BREAKABLE_CUDAGRAPH", "0"),
    ),
    DefaultChange(
        "max_num_batched_tokens",
        (0, 28, 0),
        "8192 on GPUs of 160 GiB and more",
        "16384 there",
        ("--max-num-batched-tokens",),
        kept_by=("max_num_batched_tokens", 8192),
    ),
    DefaultChange("capture sizes", (0, 28, 0), "up to 512", "up to 1024 on SM 10.x", _TOP),
    DefaultChange(
        "capture sizes",
        (0, 29, 0),
        "no multiples of 1 + speculative tokens",
        "with those multiples, where the top is not given",
        _TOP,
    ),
    DefaultChange(
        "capture sizes",
        (0, 31, 0),
        "max_num_seqs only where it is on the grid",
        "with max_num_seqs, unless speculating",
        _SIZES,
    ),
    DefaultChange("cascade attention", (0, 32, 0), "available", "removed; the option has no effect", last_word=True),
)
# Options whose own default changed and which a person would feel; the values are in the recorded tables. Not --seed: V1 sets 0
# where none is given, as later releases write it down (`ModelConfig.__post_init__`).
TOLD = (
    "--gpu-memory-utilization",
    "--prefix-caching-hash-algo",
    "--all2all-backend",
    "--safetensors-load-strategy",
    "--stream-interval",
    "--block-size",
    "--kv-cache-dtype",
    "--distributed-executor-backend",
)


def changes_between(old: Version, new: Version, given: Collection[str]) -> list[DefaultChange]:
    """Entries between two versions, in either direction, that nothing in `given` pins, oldest first."""
    low, high = sorted((tuple(old), tuple(new)))
    found = [change for change in CHANGES if low < change.since <= high]
    last = {change.setting: change.since for change in found if change.last_word}
    return [
        change
        for change in found
        if change.since >= last.get(change.setting, change.since) and not any(name in given for name in change.pinned_by)
    ]
