"""When vLLM 0.9.0 to 0.10.2 leaves its V1 engine for the old one, which has other defaults and compiles nothing.

Read in `EngineArgs._is_v1_supported_oracle` of those releases and executed: a backend in VLLM_ATTENTION_BACKEND that is not in its
list, a misspelt one included, is enough. From 0.11.0 there is no other engine.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.engine.rules.backend_table import Version

GONE_SINCE = (0, 11, 0)
MEMORY_GIB = 69.0  # its default batch is the one of smaller GPUs, whatever the memory: 256 sequences, 2048 tokens
ENV = "VLLM_ATTENTION_BACKEND"

_SINCE_0_9_0 = frozenset({
    "FLASH_ATTN_VLLM_V1", "FLASH_ATTN", "PALLAS", "PALLAS_VLLM_V1", "TRITON_ATTN_VLLM_V1", "TRITON_MLA", "FLASHMLA",
    "FLASHINFER", "FLASHINFER_VLLM_V1", "ROCM_AITER_MLA",
})  # fmt: skip
_SINCE_0_9_2 = _SINCE_0_9_0 | {"CUTLASS_MLA_VLLM_V1", "TORCH_SDPA_VLLM_V1", "FLEX_ATTENTION"}
_SINCE_0_10_2 = (_SINCE_0_9_2 - {"CUTLASS_MLA_VLLM_V1"}) | {
    "CUTLASS_MLA", "FLASHMLA_VLLM_V1", "FLASH_ATTN_MLA", "FLASHINFER_MLA", "TREE_ATTN", "XFORMERS_VLLM_V1",
}  # fmt: skip


def falls_back(env: Mapping[str, str], version: Version) -> str | None:
    """Why the old engine runs, as a sentence; None where V1 does."""
    name = env.get(ENV)
    if version >= GONE_SINCE or name is None or env.get("VLLM_USE_V1") is not None:
        return None
    known = _SINCE_0_9_0 if version < (0, 9, 2) else _SINCE_0_9_2 if version < (0, 10, 2) else _SINCE_0_10_2
    if name in known:
        return None
    return f"{ENV}={name} is not among the backends of the V1 engine: vLLM takes its old engine (V0), which compiles nothing"
