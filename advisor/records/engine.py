"""What the server says that it runs, what a start went into, and what a command comes to before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class GraphSteps:
    """Model steps of one kind, counted by the server itself (vLLM's --cudagraph-metrics)."""

    tokens: int  # of the batch, before padding
    padded: int  # tokens that the step ran with
    mode: str  # FULL or PIECEWISE graph; NONE: without a graph
    count: int


@dataclass(frozen=True)
class StartUp:
    """What a start went into, seconds. None: the log does not tell."""

    cache: str | None = None  # "cold": compiled anew; "warm": compiled code was found; None: nothing had to be compiled
    imports_s: float | None = None  # from exec until the engine begins: interpreters, imports, configuration
    load_s: float | None = None  # weights
    compile_s: float | None = None  # torch.compile, from the cache or anew
    capture_s: float | None = None  # CUDA graphs
    kernels_s: float | None = None  # autotuner, warm-up of kernels: built where they are not there yet
    rest_s: float | None = None  # memory profiling, KV cache, the first token, and what the log does not tell


@dataclass(frozen=True)
class Active:
    """What the server itself says that it runs, in its log and on its /metrics page. None: it does not say."""

    vllm_version: str | None = None
    attention_backends: tuple[str, ...] = ()  # every "Using X attention backend" line, in order, without repeats
    flash_attention_version: int | None = None
    compilation_mode: str | None = None  # NONE, STOCK_TORCH_COMPILE, DYNAMO_TRACE_ONCE, VLLM_COMPILE
    cudagraph_mode: str | None = None
    capture_sizes: tuple[int, ...] | None = None
    enforce_eager: bool | None = None
    kv_cache_tokens: int | None = None
    graph_memory_gib: float | None = None
    weights_gib: float | None = None
    load_s: float | None = None
    compile_s: float | None = None
    capture_s: float | None = None
    engine_init_s: float | None = None
    rewrites: tuple[str, ...] = ()  # log lines in which vLLM says that it changed a setting
    block_size: int | None = None  # tokens of a block of the KV cache
    kv_cache_dtype: str | None = None  # "auto": the model's own
    prefix_caching: bool | None = None
    kv_cache_blocks: int | None = None
    gpu_memory_utilization: float | None = None
    model_runner: str | None = None  # V1 or V2
    graph_steps: tuple[GraphSteps, ...] = ()  # with --cudagraph-metrics: every step since the start, most frequent first
    decode_modes: Mapping[str, float] | None = None  # share of the decode steps by GraphSteps.mode


@dataclass(frozen=True)
class Finding:
    """Something about a command that a person should know; `code` never changes its meaning, so that scripts can rely on it."""

    severity: str  # "error": vLLM will refuse it or do something else than asked; "warning"; "info"
    code: str  # "json-lost-to-dotted-key"
    message: str  # what is wrong, with the offending words
    fix: str = ""  # what to write instead


@dataclass(frozen=True)
class Resolved:
    """What a command comes to before it runs. `values` holds at least these names, which scripts rely on.

    optimization_level (int or None before 0.12), compilation_mode, cudagraph_mode, cudagraph_capture_sizes (list),
    max_cudagraph_capture_size, attention_backend (None: automatic and not known), enforce_eager, max_num_seqs,
    max_num_batched_tokens. `origins` says where each came from: default, level, flag, env, config-file, rewrite:RULE.
    """

    vllm_version: str
    source: str  # "installed": vLLM itself said so; "rules": our tables
    values: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    assumed: tuple[str, ...] = ()  # what was taken for granted, as sentences
