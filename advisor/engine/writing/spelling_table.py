"""How each serving decision is written, per vLLM version: data only, read by spelling.py.

How to extend: a new decision is one more entry of TABLE. A spelling that changed is one more row, oldest first; the last row
at or below a version counts. A row names where the value goes (an option, a key of an option that takes JSON, or an environment
variable), how values are translated, and which values cannot be said, with the sentence for the person. Facts: the parsers and
configuration classes of the 28 releases in versions.py; tests/engine/test_spelling_releases.py runs those parsers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.options import ATTENTION, COMPILATION
from advisor.engine.rules.legality import backend_names, is_backend, plain_name
from advisor.engine.versions import NEWEST

Version = tuple[int, ...]
NOTHING = object()  # the version does this by itself and has no word for it
SPECULATIVE = "--speculative-config"
OPTIMIZATION = "--optimization-level"


class Impossible(Exception):
    """A value that a version cannot express; the text says what it needs."""


@dataclass(frozen=True)
class Row:
    """The spelling from `since` on.

    key: of an option that takes JSON; a dot goes one level down. values: abstract value -> written value, NOTHING, or (for a JSON
    option without `key`) several keys at once; a value that is not in it is written as it is. refused: value -> sentence.
    cannot: the sentence for every value. renamed: computes the written value from (value, version) and may raise Impossible.
    """

    since: Version
    option: str | None = None
    key: str | None = None
    env: str | None = None
    values: Mapping[Any, Any] = field(default_factory=dict)
    refused: Mapping[Any, str] = field(default_factory=dict)
    cannot: str | None = None
    renamed: Callable[[Any, Version], Any] | None = None


def backend_spelling(name: Any, version: Version) -> str:
    """The name of a backend in a version: `TRITON_ATTN` is `TRITON_ATTN_VLLM_V1` up to 0.10.2. Raises Impossible.

    Where both forms exist the plain one means the V1 engine's backend too, except for those named below (read in the selectors
    of 0.9.0 to 0.10.2).
    """
    plain, known = plain_name(str(name)), backend_names(version)
    suffixed = plain + "_VLLM_V1"
    preferred = [suffixed, plain] if plain in ("XFORMERS", "TORCH_SDPA") else [plain, suffixed]
    for spelled in preferred:
        if spelled in known:
            return spelled
    raise Impossible(f"the attention backend {name} does not exist there; it has {', '.join(known)}")


_FA4 = {4: "FlashAttention 4 needs 0.17.1 or newer"}
_DECODE_GRAPHS = {
    "FULL_DECODE_ONLY": "decode-only full graphs need 0.10.2 or newer",
    "FULL_AND_PIECEWISE": "full graphs for decode beside piecewise ones need 0.10.2 or newer",
}
_ALWAYS_COMPILED = (
    "before 0.10.2 vLLM compiles with VLLM_COMPILE whatever it is told; only --enforce-eager turns that off"
)
_MODES = {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "DYNAMO_TRACE_ONCE": 2, "VLLM_COMPILE": 3}
_ONE_FUSION = (
    "before 0.12.0 one switch, pass_config.enable_fusion, fuses norm and activation with quantisation together"
)

TABLE: dict[str, tuple[Row, ...]] = {
    "attention_backend": (
        Row((0, 9, 0), env="VLLM_ATTENTION_BACKEND", renamed=backend_spelling),
        Row((0, 13, 0), option="--attention-backend"),
    ),
    "flash_attention_version": (
        Row((0, 9, 0), env="VLLM_FLASH_ATTN_VERSION", refused=_FA4),
        Row((0, 13, 0), option=ATTENTION, key="flash_attn_version", refused=_FA4),
        Row((0, 17, 1), option=ATTENTION, key="flash_attn_version"),
    ),
    "cascade_attention": (
        Row((0, 9, 0), option="--disable-cascade-attn", values={True: False, False: True}),
        Row((0, 32, 0), values={False: NOTHING}, refused={True: "cascade attention was removed in 0.32.0"}),
    ),
    "compilation_mode": (
        Row(
            (0, 9, 0),
            option=COMPILATION,
            key="level",
            values={"VLLM_COMPILE": 3},
            refused=dict.fromkeys(("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE"), _ALWAYS_COMPILED),
        ),
        Row((0, 10, 2), option=COMPILATION, key="level", values=_MODES),
        Row((0, 11, 2), option=COMPILATION, key="mode"),
    ),
    "cudagraph_mode": (
        Row(
            (0, 9, 0),
            option=COMPILATION,
            values={"PIECEWISE": {"full_cuda_graph": False}, "FULL": {"full_cuda_graph": True}},
            refused={
                "NONE": "0.9.0 captures graphs whatever it is told; no graphs need 0.9.2 or newer, or --enforce-eager",
                **_DECODE_GRAPHS,
            },
        ),
        Row(
            (0, 9, 2),
            option=COMPILATION,
            values={
                "NONE": {"use_cudagraph": False},
                "PIECEWISE": {"use_cudagraph": True, "full_cuda_graph": False},
                "FULL": {"use_cudagraph": True, "full_cuda_graph": True},
            },
            refused=_DECODE_GRAPHS,
        ),
        Row((0, 10, 2), option=COMPILATION, key="cudagraph_mode"),
    ),
    "cudagraph_capture_sizes": (Row((0, 9, 0), option=COMPILATION, key="cudagraph_capture_sizes"),),
    "max_cudagraph_capture_size": (
        Row((0, 9, 0), option="--cuda-graph-sizes"),  # one number is a maximum, several are a list
        Row((0, 11, 2), option=COMPILATION, key="max_cudagraph_capture_size"),
    ),
    "optimization_level": (
        Row((0, 9, 0), cannot="optimization levels need 0.12.0 or newer; before, -O sets the compilation mode"),
        Row((0, 12, 0), option=OPTIMIZATION),
    ),
    "enforce_eager": (Row((0, 9, 0), option="--enforce-eager"),),
    "performance_mode": (
        Row((0, 9, 0), values={"balanced": NOTHING}, cannot="performance modes need 0.17.1 or newer"),
        Row((0, 17, 1), option="--performance-mode"),
    ),
    "async_scheduling": (
        Row((0, 9, 0), values={False: NOTHING}, cannot="asynchronous scheduling needs 0.10.0 or newer"),
        Row((0, 10, 0), option="--async-scheduling"),
    ),
    "speculative_config": (Row((0, 9, 0), option=SPECULATIVE),),
    "speculative_tokens": (Row((0, 9, 0), option=SPECULATIVE, key="num_speculative_tokens"),),
    "kv_cache_dtype": (Row((0, 9, 0), option="--kv-cache-dtype"),),
    "prefix_caching": (Row((0, 9, 0), option="--enable-prefix-caching"),),
    "max_num_seqs": (Row((0, 9, 0), option="--max-num-seqs"),),
    "max_num_batched_tokens": (Row((0, 9, 0), option="--max-num-batched-tokens"),),
    "block_size": (Row((0, 9, 0), option="--block-size"),),
    "flash_attention_splits": (  # most parts that one sequence's keys are split into inside a graph
        Row((0, 9, 0), cannot="the split count of FlashAttention needs 0.11.0 or newer"),
        Row((0, 11, 0), env="VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH"),
        Row((0, 13, 0), option=ATTENTION, key="flash_attn_max_num_splits_for_cuda_graph"),
    ),
    "inductor_graph_partition": (
        Row((0, 9, 0), values={False: NOTHING}, cannot="Inductor's graph partition needs 0.11.0 or newer"),
        Row((0, 11, 0), option=COMPILATION, key="use_inductor_graph_partition"),
    ),
    "compile_sizes": (Row((0, 9, 0), option=COMPILATION, key="compile_sizes"),),
    "fuse_norm_quant": (
        Row((0, 9, 0), cannot=_ONE_FUSION),
        Row((0, 12, 0), option=COMPILATION, key="pass_config.fuse_norm_quant"),
    ),
    "fuse_act_quant": (
        Row((0, 9, 0), cannot=_ONE_FUSION),
        Row((0, 12, 0), option=COMPILATION, key="pass_config.fuse_act_quant"),
    ),
    "fuse_attn_quant": (
        Row((0, 9, 0), cannot="fusing attention with quantisation needs 0.9.2 or newer"),
        Row((0, 9, 2), option=COMPILATION, key="pass_config.enable_attn_fusion"),
        Row((0, 12, 0), option=COMPILATION, key="pass_config.fuse_attn_quant"),
    ),
    "fuse_qk_norm_rope": (
        Row((0, 9, 0), cannot="fusing the norms of q and k with their rotation needs 0.11.2 or newer"),
        Row((0, 11, 2), option=COMPILATION, key="pass_config.enable_qk_norm_rope_fusion"),
    ),
    "fuse_allreduce_rms": (
        Row((0, 9, 0), cannot="fusing all-reduce with the norm needs 0.10.0 or newer"),
        Row((0, 10, 0), option=COMPILATION, key="pass_config.enable_fi_allreduce_fusion"),
        Row((0, 12, 0), option=COMPILATION, key="pass_config.fuse_allreduce_rms"),
    ),
}
# Options that say the same as a decision, in any version that has them: taken in as the decision, so that it is said once.
SAME_AS: dict[str, str] = {
    "--attention-backend": "attention_backend",
    "--enforce-eager": "enforce_eager",
    OPTIMIZATION: "optimization_level",
    "--cudagraph-capture-sizes": "cudagraph_capture_sizes",
    "--max-cudagraph-capture-size": "max_cudagraph_capture_size",
    "--performance-mode": "performance_mode",
    "--async-scheduling": "async_scheduling",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--enable-prefix-caching": "prefix_caching",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--block-size": "block_size",
}
SAME_KEYS: dict[tuple[str, str], str] = {
    (COMPILATION, "cudagraph_mode"): "cudagraph_mode",
    (COMPILATION, "cudagraph_capture_sizes"): "cudagraph_capture_sizes",
    (COMPILATION, "max_cudagraph_capture_size"): "max_cudagraph_capture_size",
    (COMPILATION, "mode"): "compilation_mode",
    (ATTENTION, "backend"): "attention_backend",
    (ATTENTION, "flash_attn_version"): "flash_attention_version",
    (ATTENTION, "flash_attn_max_num_splits_for_cuda_graph"): "flash_attention_splits",
    (COMPILATION, "use_inductor_graph_partition"): "inductor_graph_partition",
    (COMPILATION, "compile_sizes"): "compile_sizes",
}
# Renamed keys of a configuration whose values kept their meaning: (option, old key) -> (new keys, from). Read in the sources.
_PASSES: dict[str, tuple[str, ...]] = {
    "enable_fusion": ("fuse_norm_quant", "fuse_act_quant"),
    "enable_attn_fusion": ("fuse_attn_quant",),
    "enable_noop": ("eliminate_noops",),
    "enable_sequence_parallelism": ("enable_sp",),
    "enable_async_tp": ("fuse_gemm_comms",),
    "enable_fi_allreduce_fusion": ("fuse_allreduce_rms",),
}
RENAMED_KEYS: dict[tuple[str, str], tuple[tuple[str, ...], Version]] = {
    **{(f"{COMPILATION}.pass_config", old): (new, (0, 12, 0)) for old, new in _PASSES.items()},
    (COMPILATION, "compile_ranges_split_points"): (("compile_ranges_endpoints",), (0, 18, 1)),
}


@dataclass(frozen=True)
class Combination:
    """Values that a version takes one by one and does not honour together, from `since` until before `until`."""

    since: Version
    until: Version
    values: Mapping[str, tuple[Any, ...]]  # decision -> values; all of them must be given
    sentence: str


COMBINATIONS = (
    Combination(
        (0, 12, 0),
        (0, 13, 0),
        {
            "compilation_mode": ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE"),
            "cudagraph_mode": ("PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
        },
        "it captures no graphs without VLLM_COMPILE; full graphs without it need 0.13.0 or newer",
    ),
)
# What a decision may be, in any version; decisions that are not here take any value.
DOMAINS: dict[str, tuple[Any, ...]] = {
    "compilation_mode": tuple(_MODES),
    "cudagraph_mode": ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
    "optimization_level": (0, 1, 2, 3),
    "performance_mode": ("balanced", "interactivity", "throughput"),
    "flash_attention_version": (2, 3, 4),
    **dict.fromkeys(("cascade_attention", "enforce_eager", "async_scheduling", "prefix_caching"), (True, False)),
    **dict.fromkeys(("inductor_graph_partition", *(name for name in TABLE if name.startswith("fuse_"))), (True, False)),
}


def known_backend(name: Any, version: Version) -> bool:
    """Whether a version newer than 0.12 has the backend; a version newer than all known may have any."""
    return str(name).lower() == "auto" or version > NEWEST or is_backend(str(name), version)


def row(setting: str, version: Version) -> Row:
    """The spelling of a decision in a version. Raises KeyError for a name that is no decision."""
    return [found for found in TABLE[setting] if found.since <= version][-1]
