"""What the first eighth, quarter, half and three quarters of a sample's requests said: for whoever asks later what a shorter
sample would have told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.measure.summary import distribution_ms
from advisor.records import Slice

PARTS = (1 / 8, 1 / 4, 1 / 2, 3 / 4)
_DIGITS = 4


def slices_of(raw: Mapping[str, Any], parts: Sequence[float] = PARTS) -> tuple[Slice, ...]:
    """The slices of a raw result of vLLM's client, shortest first. Empty where a request failed or a list is missing.

    Several client processes: their lists are in the order of the load already (advisor/measure/merge.py), and their clocks
    are the machine's one.
    """
    names = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
    lists = {name: raw.get(name) for name in names}
    if not all(isinstance(found, list) and found for found in lists.values()):
        return ()
    if len({len(found) for found in lists.values()}) != 1 or any(lists["errors"]) or not all(lists["output_lens"]):
        return ()
    # vLLM 0.26.0 keeps no latencies: the first token and all gaps after it add up to them.
    latencies = raw.get("latencies") or [t + sum(gaps) for t, gaps in zip(lists["ttfts"], lists["itls"], strict=True)]
    order = sorted(range(len(latencies)), key=lambda index: lists["start_times"][index])
    counts = dict.fromkeys(int(len(order) * part) for part in parts)
    return tuple(_slice(order[:count], lists, latencies) for count in counts if 0 < count < len(order))


def _slice(chosen: Sequence[int], lists: Mapping[str, Any], latencies: Sequence[float]) -> Slice:
    """The figures of these requests, as advisor/measure/summary.py defines them for all."""
    starts, ttfts, outputs = lists["start_times"], lists["ttfts"], lists["output_lens"]
    duration_s = max(starts[i] + latencies[i] for i in chosen) - starts[chosen[0]]
    tpots = [(latencies[i] - ttfts[i]) / (outputs[i] - 1) for i in chosen if outputs[i] > 1]
    return Slice(
        requests=len(chosen),
        duration_s=_rounded(duration_s),
        output_tok_s=_rate(sum(outputs[i] for i in chosen), duration_s),
        input_tok_s=_rate(sum(lists["input_lens"][i] for i in chosen), duration_s),
        requests_s=_rate(len(chosen), duration_s),
        ttft_ms=_distribution([ttfts[i] for i in chosen]),
        tpot_ms=_distribution(tpots),
        e2el_ms=_distribution([latencies[i] for i in chosen]),
    )


def _distribution(seconds: Sequence[float]) -> dict[str, float]:
    return {name: _rounded(value) for name, value in distribution_ms(seconds).items()}


def _rate(count: float, duration_s: float) -> float:
    return _rounded(count / duration_s) if duration_s > 0 else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
