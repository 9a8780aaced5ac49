"""Which graphs each attention backend can be captured in, per version and GPU."""

from __future__ import annotations

from advisor.engine.rules.backend_names import plain_name
from advisor.engine.rules.backend_table import (
    ALWAYS,
    BACKENDS,
    NEVER,
    SINGLE_TOKEN,
    UNIFORM_BATCH,
    UNKNOWN,
    Version,
    at,
    since,
)


def flash_attention_version(
    version: Version, compute_capability: tuple[int, int], asked: int | None = None, head_size: int | None = None
) -> int:
    """The FlashAttention that FLASH_ATTN runs: 2, 3 or 4 (`get_flash_attn_version`, CUDA builds with all of them)."""
    major = compute_capability[0]
    four = version >= (0, 17, 1) and major in (9, 10, 11)
    chosen = asked or (3 if major == 9 else 4 if major == 10 and four else 2)
    if chosen == 3 and major >= 10:
        chosen = 4 if four else 2
    if chosen == 4 and major >= 10 and head_size is not None and head_size > 128 and version < (0, 29):
        chosen = 2
    return chosen


def graph_support(
    backend: str,
    version: Version,
    flash_attention_version: int | None = None,
    compute_capability: tuple[int, int] | None = None,
) -> str:
    """ALWAYS, UNIFORM_BATCH, UNIFORM_SINGLE_TOKEN_DECODE or NEVER; UNKNOWN where the table does not say.

    Releases before 0.10.2 know only yes (ALWAYS) and no (NEVER). A model with several attention kinds gets the least of them.
    """
    name = plain_name(backend)
    if name == "FLASH_ATTN":
        return _flash_graphs(version, flash_attention_version)
    if name == "FLASHINFER":
        return _flashinfer_graphs(version, compute_capability)
    support = at(BACKENDS[name].graphs, version) if name in BACKENDS else UNKNOWN
    if version < (0, 10, 2) and support in (UNIFORM_BATCH, SINGLE_TOKEN):
        return ALWAYS if name in ("FLASHMLA", "ROCM_AITER_MLA") else NEVER
    return support or UNKNOWN


def _flash_graphs(version: Version, flash_attention: int | None) -> str:
    if flash_attention is None:
        return UNKNOWN
    if flash_attention == 3 or (flash_attention == 4 and version >= (0, 33)):
        return ALWAYS
    return UNIFORM_BATCH if version >= (0, 10, 2) else NEVER


def _flashinfer_graphs(version: Version, capability: tuple[int, int] | None) -> str:
    """TRT-LLM's decode kernels take uniform batches; they exist for 10.x, from 0.28 for 12.x, from 0.30 for 9.0 (XQA).

    From 0.33 the FlashAttention 2 decode below 9.0 takes them as well.
    """
    if version < (0, 10, 2):
        return NEVER
    if version < (0, 11, 2):
        return SINGLE_TOKEN
    if capability is None:
        return UNKNOWN
    if capability[0] == 10:
        return UNIFORM_BATCH
    if (capability[0] == 12 and version >= (0, 28)) or (capability == (9, 0) and version >= (0, 30)):
        return UNIFORM_BATCH
    return UNIFORM_BATCH if capability < (9, 0) and version >= (0, 33) else SINGLE_TOKEN


# Layers with a state instead of a KV cache, by ModelFacts.recurrent (v1/attention/backends/mamba_attn.py, gdn_attn.py,
# linear_attn.py, short_conv_attn.py of each release).
_STATES = since(((0, 10, 2), SINGLE_TOKEN), ((0, 17, 1), UNIFORM_BATCH))
_RECURRENT = {
    "mamba": _STATES,
    "gated-delta": since(((0, 10, 2), UNIFORM_BATCH)),
    "linear": since(((0, 10, 2), NEVER), ((0, 12, 0), SINGLE_TOKEN), ((0, 25, 1), UNIFORM_BATCH)),
    "short-conv": since(((0, 10, 2), NEVER), ((0, 11, 2), SINGLE_TOKEN), ((0, 17, 1), UNIFORM_BATCH)),
}
_LEAST_FIRST = (NEVER, SINGLE_TOKEN, UNIFORM_BATCH, ALWAYS)


def with_context_parallel(support: str, backend: str | None, ranks: int, version: Version) -> str:
    """From 0.28 on FLASHINFER's graphs hold one token a sequence where the cache is spread over decode context ranks."""
    limited = ranks > 1 and version >= (0, 28, 0) and backend == "FLASHINFER"
    return min(support, SINGLE_TOKEN, key=_LEAST_FIRST.index) if limited and support != UNKNOWN else support


def with_recurrent(support: str, kind: str | None, version: Version) -> str:
    """The least of what the attention backend's graphs can hold and what those of a model's recurrent layers can."""
    if kind is None or support == UNKNOWN:
        return support
    theirs = at(_RECURRENT[kind], version) if kind in _RECURRENT else None
    return support if theirs is None else min(support, theirs, key=_LEAST_FIRST.index)
