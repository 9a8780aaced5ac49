"""When each token of a benchmark run came, and how many requests were decoding at that moment. Pure.

The raw result of vLLM's client holds for each request when it was sent, the time to its first token and the gaps after that
(`start_times` 0.15.1 to 0.33.0). A request takes part in every decode step between its first token and its last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_MOST_JOINS = 64  # of a run are looked at for times: each costs a pass over all gaps


@dataclass(frozen=True)
class TokenTimes:
    """Of each request that gave more than one token: when its tokens came, the gaps between them, and its prompt's length."""

    times: tuple[np.ndarray, ...]
    gaps: tuple[np.ndarray, ...]
    prompts: tuple[int, ...]  # 0 where the raw result does not say

    def decoding(self, moments: np.ndarray) -> np.ndarray:
        """Requests that were decoding at each moment: after their first token, up to their last."""
        firsts, lasts = np.sort([own[0] for own in self.times]), np.sort([own[-1] for own in self.times])
        return firsts.searchsorted(moments, "left") - lasts.searchsorted(moments, "left")


def token_times(raw: Mapping[str, Any]) -> TokenTimes:
    """Raises ValueError where a list is missing or the lists differ in length; failed requests have no tokens."""
    names = ("start_times", "ttfts", "itls")
    lists = [raw.get(name) if isinstance(raw, Mapping) else None for name in names]
    missing = [name for name, found in zip(names, lists, strict=True) if not isinstance(found, list)]
    if missing:
        raise ValueError(f"the raw result has no per-request list {', '.join(missing)}")
    lengths = raw.get("input_lens") or [0] * len(lists[0])
    if len({len(found) for found in (*lists, lengths)}) != 1:
        raise ValueError("the raw result's per-request lists differ in length")
    rows = [(start + ttft, gaps, length) for start, ttft, gaps, length in zip(*lists, lengths, strict=True) if gaps]
    gaps = tuple(np.asarray(row[1], dtype=float) for row in rows)
    times = tuple(row[0] + np.concatenate(([0.0], np.cumsum(own))) for row, own in zip(rows, gaps, strict=True))
    return TokenTimes(times, gaps, tuple(row[2] for row in rows))


def decoding_gaps(raw: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(gaps between two tokens of a request in seconds, requests that were decoding in the middle of each gap)."""
    seen = token_times(raw)
    if not seen.times:
        return np.empty(0), np.empty(0, dtype=int)
    middles = np.concatenate([(own[1:] + own[:-1]) / 2 for own in seen.times])
    # Two tokens that came at one instant: the request itself was decoding all the same.
    return np.concatenate(seen.gaps), np.maximum(seen.decoding(middles), 1)


def decode_histogram(raw: Mapping[str, Any], tokens_a_request: int = 1) -> dict[int, float]:
    """Decode batches of a benchmark run: tokens of the batch -> steps, which need no whole number.

    A step of n requests gives n gaps, so the steps are the gaps seen with n requests decoding, over n. `tokens_a_request`:
    1 + speculative tokens. Steps that also hold prefill tokens count as if they had decoded only. Raises as `token_times`.
    """
    _, decoding = decoding_gaps(raw)
    counts = np.bincount(decoding[decoding > 0]) if len(decoding) else np.empty(0)
    return {n * tokens_a_request: float(counts[n]) / n for n in range(1, len(counts)) if counts[n]}


def joining_batches(
    seen: TokenTimes, tokens_a_request: int = 1, most: int = 8192, computed: float = 1.0
) -> list[tuple[int, int, int]]:
    """(request, tokens that decoded, tokens with its prompt) of each step in which a prompt joined the batch.

    One prompt a step is taken, with `computed` of its tokens (the rest is in the prefix cache). A prompt that does not fit
    into `most` tokens, max_num_batched_tokens, is left out: no list has graphs for its chunks.
    """
    if not seen.times or not all(seen.prompts):
        return []
    decoding = seen.decoding(np.array([own[0] for own in seen.times])) * tokens_a_request
    found = [(i, int(n), int(n) + max(1, round(seen.prompts[i] * computed))) for i, n in enumerate(decoding)]
    return [row for row in found if row[2] <= most]


def step_histogram(
    raw: Mapping[str, Any], tokens_a_request: int = 1, most: int = 8192, computed: float = 1.0
) -> dict[int, float]:
    """As `decode_histogram`, with the steps in which a prompt joins the batch: some may be small enough for a graph."""
    steps = decode_histogram(raw, tokens_a_request)
    for _, batch, whole in joining_batches(token_times(raw), tokens_a_request, most, computed):
        steps[whole] = steps.get(whole, 0.0) + 1
        steps[batch] = steps.get(batch, 0.0) - 1
    return {tokens: count for tokens, count in sorted(steps.items()) if tokens > 0 and count > 0}


def joining_times(raw: Mapping[str, Any], tokens_a_request: int = 1) -> list[tuple[int, float]]:
    """(tokens, seconds) of steps in which a prompt joined: the gap that those have who were decoding meanwhile."""
    seen = token_times(raw)
    joins = joining_batches(seen, tokens_a_request)
    if not joins:
        return []
    ends, gaps = np.concatenate([own[1:] for own in seen.times]), np.concatenate(seen.gaps)
    found = []
    for request, _, whole in joins[:: max(1, len(joins) // _MOST_JOINS)]:
        moment = seen.times[request][0]
        around = gaps[(ends - gaps < moment) & (moment <= ends)]
        if len(around):
            found.append((whole, float(np.median(around))))
    return found
