"""When each token of a benchmark run came, and how many requests were decoding at that moment. Pure.

The raw result of vLLM's client holds for each request when it was sent, the time to its first token and the gaps after that
(`start_times` 0.15.1 to 0.33.0). A request takes part in every decode step between its first token and its last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def decoding_gaps(raw: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(gaps between two tokens of a request in seconds, requests that were decoding in the middle of each gap).

    Raises ValueError where a list is missing or the lists differ in length; a failed request has no tokens and is left out.
    """
    names = ("start_times", "ttfts", "itls")
    lists = [raw.get(name) if isinstance(raw, Mapping) else None for name in names]
    missing = [name for name, found in zip(names, lists, strict=True) if not isinstance(found, list)]
    if missing:
        raise ValueError(f"the raw result has no per-request list {', '.join(missing)}")
    if len({len(found) for found in lists}) != 1:
        raise ValueError("the raw result's per-request lists differ in length")
    rows = [(start + ttft, np.asarray(gaps, dtype=float)) for start, ttft, gaps in zip(*lists, strict=True) if gaps]
    if not rows:
        return np.empty(0), np.empty(0, dtype=int)
    times = [first + np.concatenate(([0.0], np.cumsum(gaps))) for first, gaps in rows]
    middles = np.concatenate([(moments[1:] + moments[:-1]) / 2 for moments in times])
    return np.concatenate([gaps for _, gaps in rows]), _decoding(times, middles)


def _decoding(times: Sequence[np.ndarray], moments: np.ndarray) -> np.ndarray:
    """Requests that were decoding at each moment: after their first token, up to their last. `times`: of each one's tokens."""
    firsts, lasts = np.sort([tokens[0] for tokens in times]), np.sort([tokens[-1] for tokens in times])
    return firsts.searchsorted(moments, "left") - lasts.searchsorted(moments, "left")


def decode_histogram(raw: Mapping[str, Any], tokens_a_request: int = 1) -> dict[int, float]:
    """Decode batches of a benchmark run: tokens of the batch -> steps, which need no whole number.

    A step of n requests gives n gaps, so the steps are the gaps seen with n requests decoding, over n. `tokens_a_request`:
    1 + speculative tokens. Steps that also hold prefill tokens count as if they had decoded only. Raises as `decoding_gaps`.
    """
    _, decoding = decoding_gaps(raw)
    counts = np.bincount(decoding[decoding > 0]) if len(decoding) else np.empty(0)
    return {n * tokens_a_request: float(counts[n]) / n for n in range(1, len(counts)) if counts[n]}


def step_histogram(
    raw: Mapping[str, Any], tokens_a_request: int = 1, most: int = 8192, computed: float = 1.0
) -> dict[int, float]:
    """As `decode_histogram`, with the steps in which a prompt joins the batch: some may be small enough for a graph.

    One prompt a step is taken, with `computed` of its tokens (the rest is in the prefix cache). A prompt that does not fit
    into `most` tokens, max_num_batched_tokens, is left out: no list has graphs for its chunks.
    """
    steps = decode_histogram(raw, tokens_a_request)
    rows = [
        (start + ttft + np.concatenate(([0.0], np.cumsum(gaps))), length)
        for start, ttft, gaps, length in zip(
            raw["start_times"], raw["ttfts"], raw["itls"], raw.get("input_lens") or [], strict=False
        )
        if gaps
    ]
    if not rows:
        return steps
    times = [tokens for tokens, _ in rows]
    for decoding, (_, length) in zip(_decoding(times, np.array([tokens[0] for tokens in times])), rows, strict=True):
        batch = int(decoding) * tokens_a_request
        whole = batch + max(1, round(length * computed))
        if whole <= most:
            steps[whole] = steps.get(whole, 0.0) + 1
            left = steps.get(batch, 0.0) - 1
            if left > 0:
                steps[batch] = left
            else:
                steps.pop(batch, None)
    return dict(sorted(steps.items()))
