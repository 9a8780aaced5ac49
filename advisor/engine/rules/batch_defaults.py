"""Defaults of max_num_seqs and max_num_batched_tokens for the API server, and what vLLM does with them, per version.

Read in `EngineArgs.get_batch_defaults` and its callers of the 28 releases. The usage context is the API server's: the offline LLM
class has other defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.engine.rules.backend_table import Version


@dataclass(frozen=True)
class Tier:
    """Defaults of GPUs with at least `min_gib` GiB, from a release on; `workers` multiplies both by TP x PP."""

    since: Version
    platform: str
    min_gib: float
    seqs: int
    tokens: int
    workers: bool = False


TIERS: tuple[Tier, ...] = (
    Tier((0, 9, 0), "cuda", 0, 256, 2048),
    Tier((0, 9, 0), "cuda", 70, 1024, 8192),  # but not an A100: see `small_in_spite_of_memory`
    Tier((0, 28, 0), "cuda", 160, 1024, 16384),
    Tier((0, 9, 2), "cpu", 0, 32, 2048),
    Tier((0, 10, 0), "cpu", 0, 128, 2048, workers=True),
)


# SchedulerConfig.DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP, 0.20.2 to 0.33.0
BATCHED_EXPERTS_TOKENS = 256


@dataclass(frozen=True)
class BatchLimits:
    """Both limits, where they came from, and why vLLM would refuse them; None where the rules do not know."""

    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    seqs_origin: str
    tokens_origin: str
    refusal: str | None = None


def default_tier(
    version: Version,
    platform: str,
    memory_gib: float,
    compute_capability: tuple[int, int] | None = None,
    batched_experts: bool = False,
) -> Tier | None:
    """The tier that counts: of those that fit, the one for the most memory, and of these the newest.

    `batched_experts`: data parallel experts whose kernels take small batches only (Deployment.batched_experts).
    """
    kind = "cuda" if platform in ("cuda", "rocm") else platform
    if small_in_spite_of_memory(version, compute_capability):
        memory_gib = min(memory_gib, 69)
    fitting = [tier for tier in TIERS if tier.platform == kind and tier.since <= version and tier.min_gib <= memory_gib]
    found = max(fitting, key=lambda tier: (tier.min_gib, tier.since), default=None)
    if found and batched_experts and version >= (0, 20, 2):
        return replace(found, tokens=BATCHED_EXPERTS_TOKENS)
    return found


def small_in_spite_of_memory(version: Version, compute_capability: tuple[int, int] | None) -> bool:
    """An A100 (known by its name, here by compute capability 8.0) of 80 GiB, and from 0.33 a GB10 (12.1)."""
    return compute_capability == (8, 0) or (compute_capability == (12, 1) and version >= (0, 33))


def batch_limits(
    version: Version,
    tier: Tier | None,
    *,
    seqs: int | None,
    tokens: int | None,
    workers: int = 1,
    throughput: bool = False,
    model_length: int | None = None,
    chunked_prefill: bool = True,
) -> BatchLimits:
    """The limits that vLLM sets, for given ones or the tier's defaults. `model_length` is max_model_len, None where unknown."""
    if tier is None and (seqs is None or tokens is None):
        return BatchLimits(seqs, tokens, "flag" if seqs else "default", "flag" if tokens else "default")
    factor = workers if tier is not None and tier.workers else 1
    doubled = 2 if throughput and version >= (0, 17, 1) else 1
    origin = "rewrite:performance-mode" if doubled == 2 else "default"
    new_seqs = seqs or tier.seqs * factor * doubled  # type: ignore[union-attr]
    new_tokens = tokens or tier.tokens * factor * doubled  # type: ignore[union-attr]
    seqs_origin, tokens_origin = ("flag" if seqs else origin), ("flag" if tokens else origin)
    if tokens is None:
        new_tokens, tokens_origin = _fitted_tokens(
            version, new_tokens, tokens_origin, new_seqs, model_length, chunked_prefill
        )
    if seqs is None and version >= (0, 10, 2) and new_seqs > new_tokens:
        new_seqs, seqs_origin = new_tokens, "rewrite:at-most-max-num-batched-tokens"
    refusal = None
    if new_tokens < new_seqs:
        refusal = f"max_num_batched_tokens {new_tokens} is below max_num_seqs {new_seqs}"
    return BatchLimits(new_seqs, new_tokens, seqs_origin, tokens_origin, refusal)


def _fitted_tokens(
    version: Version, tokens: int, origin: str, seqs: int, model_length: int | None, chunked: bool
) -> tuple[int, str]:
    if model_length is None:
        return tokens, origin
    if not chunked:
        if version < (0, 11, 2):
            return model_length, "rewrite:no-chunked-prefill"
        if model_length > tokens:
            tokens, origin = model_length, "rewrite:no-chunked-prefill"
    if version >= (0, 11, 2) and seqs * model_length < tokens:
        return seqs * model_length, "rewrite:at-most-what-the-sequences-hold"
    return tokens, origin
