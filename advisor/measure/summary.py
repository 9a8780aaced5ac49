"""From the raw result of vLLM's benchmark client to a Sample: every figure computed here, from the per-request lists.

Definitions are those of vllm/benchmarks/serve.py (0.26.0, 0.32.0): latency ends with the last token, TPOT is the time
after the first token over the tokens after the first, for requests of more than one token; percentiles interpolate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.records import Sample

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Requests:
    """What the raw result says about each completed request, in the order of sending; seconds and tokens."""

    sent: int
    errors: tuple[str, ...]  # of those that failed
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    ttft_s: tuple[float, ...]
    latency_s: tuple[float, ...]
    gaps_s: tuple[float, ...]  # between tokens, of all requests together
    longest_gap_s: tuple[float, ...] = ()  # of each request; 0 for one token
    positions: tuple[int, ...] = ()  # of each in the raw lists, where those that failed have theirs too

    @property
    def completed(self) -> int:
        return len(self.output_tokens)

    @property
    def tpot_s(self) -> tuple[float, ...]:
        rows = zip(self.latency_s, self.ttft_s, self.output_tokens, strict=True)
        return tuple((latency - ttft) / (tokens - 1) for latency, ttft, tokens in rows if tokens > 1)


def requests_of(raw: Mapping[str, Any]) -> Requests:
    """The per-request lists of a raw result saved with --save-detailed. Raises ValueError where one is missing."""
    names = ("errors", "input_lens", "output_lens", "ttfts", "itls")
    if not isinstance(raw, Mapping):
        raise ValueError(f"the raw result is a {type(raw).__name__}")
    missing = [name for name in names if not isinstance(raw.get(name), list)]
    if missing:
        raise ValueError(f"the raw result has no per-request list {', '.join(missing)}")
    if len({len(raw[name]) for name in names}) != 1:
        raise ValueError("the raw result's per-request lists differ in length")
    # vLLM 0.26.0 keeps no latencies: the first token and all gaps after it add up to them.
    latencies = raw.get("latencies") or [t + sum(gaps) for t, gaps in zip(raw["ttfts"], raw["itls"], strict=True)]
    done = [i for i, error in enumerate(raw["errors"]) if not error and raw["output_lens"][i] > 0]
    failed = sorted(set(range(len(raw["errors"]))) - set(done))
    return Requests(
        sent=len(raw["errors"]),
        errors=tuple(raw["errors"][i] or "no token came back" for i in failed),
        input_tokens=tuple(raw["input_lens"][i] for i in done),
        output_tokens=tuple(raw["output_lens"][i] for i in done),
        ttft_s=tuple(raw["ttfts"][i] for i in done),
        latency_s=tuple(latencies[i] for i in done),
        gaps_s=tuple(gap for i in done for gap in raw["itls"][i]),
        longest_gap_s=tuple(max(raw["itls"][i], default=0.0) for i in done),
        positions=tuple(done),
    )


def summarise(raw: Mapping[str, Any], seed: int) -> Sample:
    """The Sample of a raw result, without any judgement of it (advisor/measure/validity.py). Raises ValueError."""
    requests = requests_of(raw)
    duration_s = float(raw.get("duration") or 0.0)
    input_tokens, output_tokens = sum(requests.input_tokens), sum(requests.output_tokens)
    return Sample(
        seed=seed,
        duration_s=duration_s,
        requests=requests.completed,
        failed=len(requests.errors),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        output_tok_s=_rate(output_tokens, duration_s),
        input_tok_s=_rate(input_tokens, duration_s),
        requests_s=_rate(requests.completed, duration_s),
        ttft_ms=distribution_ms(requests.ttft_s),
        tpot_ms=distribution_ms(requests.tpot_s),
        itl_ms=distribution_ms(requests.gaps_s),
        e2el_ms=distribution_ms(requests.latency_s),
    )


def empty_sample(seed: int) -> Sample:
    """A sample that was not taken; the caller says why."""
    none = distribution_ms(())
    return Sample(seed, 0.0, 0, 0, 0, 0, 0.0, 0.0, 0.0, none, none, none, none)


def distribution_ms(seconds: Iterable[float]) -> dict[str, float]:
    """mean, p50, p90 and p99 in milliseconds; zeros where there is no value."""
    values = np.asarray(tuple(seconds), dtype=float) * 1000
    if not values.size:
        return dict.fromkeys(("mean", *(f"p{p}" for p in PERCENTILES)), 0.0)
    return {"mean": float(values.mean())} | {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES}


def _rate(count: float, duration_s: float) -> float:
    return count / duration_s if duration_s > 0 else 0.0
