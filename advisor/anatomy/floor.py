"""The least time a decode step can take: what it must read, over the bandwidth that this GPU was measured to have. Pure.

Read are all weights of the dense layers once a step whatever the batch; of experts, those that the batch's tokens are sent to, here
as if the router sent each to any of them alike; of the KV cache, every token of every request. Not counted, and small beside
these: rows of the embedding, activations, what is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def weight_bytes(weights: Mapping[str, Any], batch: int) -> float:
    """Bytes of weights that a step of `batch` tokens reads. `weights`: as advisor/target/anatomy.py reports them."""
    experts, chosen = weights.get("experts") or 0, weights.get("experts_per_token") or 0
    share = 1 - (1 - chosen / experts) ** batch if experts and chosen else 1.0
    return weights["dense_bytes"] + weights["experts_bytes"] * share


def kv_bytes(groups: Sequence[Mapping[str, Any]], batch: int, context: float) -> float:
    """Bytes of the KV cache that a step reads, with `context` tokens a request; a window reads no further back."""
    each = sum(
        group["layers"] * (group["bytes_per_token"] * min(context, group["window"] or context) + group["state_bytes"])
        for group in groups
    )
    return each * batch


def floor_ms(
    weights: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], batch: int, context: float, gb_s: float
) -> float:
    """Milliseconds; `gb_s` in 10**9 bytes a second."""
    return (weight_bytes(weights, batch) + kv_bytes(groups, batch, context)) / gb_s / 1e6
