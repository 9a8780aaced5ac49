"""Serving decisions to render in every version: one of each kind of value, and mixtures of them, always the same ones."""

import random

from advisor.engine.writing.spelling import spell
from advisor.errors import InputError

VALUES = {
    "attention_backend": ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"],
    "flash_attention_version": [2, 3, 4],
    "cascade_attention": [True, False],
    "cudagraph_mode": ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"],
    "cudagraph_capture_sizes": [[1], [1, 2, 4, 8, 16]],
    "max_cudagraph_capture_size": [16, 256],
    "compilation_mode": ["NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE"],
    "optimization_level": [0, 1, 2, 3],
    "enforce_eager": [True, False],
    "performance_mode": ["balanced", "interactivity", "throughput"],
    "async_scheduling": [True, False],
    "speculative_config": [{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}],
    "kv_cache_dtype": ["auto", "fp8", "fp8_e5m2"],
    "prefix_caching": [True, False],
    "max_num_seqs": [1, 512],
    "max_num_batched_tokens": [8192],
    "flash_attention_splits": [8, 64],
    "inductor_graph_partition": [True, False],
    "compile_sizes": [[8], ["cudagraph_capture_sizes"]],
    "fuse_norm_quant": [True, False],
    "fuse_act_quant": [True, False],
    "fuse_attn_quant": [True, False],
    "fuse_qk_norm_rope": [True],
    "fuse_allreduce_rms": [True, False],
    "--max-model-len": [4096],
    "--gpu-memory-utilization": [0.85],
    "block_size": [16, 64],
    "--enable-chunked-prefill": [True, False],
    "--served-model-name": [["a", "b"]],
    "--compilation-config": [
        {"custom_ops": ["+rms_norm"], "pass_config": {"enable_noop": True}},
        {"backend": "inductor"},
    ],
}


def expressible(version):
    """(name, value) pairs that the version has words for, and the sentences for the others."""
    said, refused = [], []
    for name, values in VALUES.items():
        for value in values:
            try:
                spell({name: value}, version)
                said.append((name, value))
            except InputError as error:
                refused.append(error.problem)
    return said, refused


def mixtures(version, count=40):
    """Settings that the version has words for: each value alone, then seeded mixtures."""
    said, _ = expressible(version)
    yield from ({name: value} for name, value in said)
    chance = random.Random(17)
    for _ in range(count):
        yield dict(chance.sample(said, k=min(len(said), chance.randint(3, 12))))
