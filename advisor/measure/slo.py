"""Service level objectives: what `--slo` says, which requests comply, and whether enough of them do. Pure.

A request complies when each of its own figures is at or below its limit, as `vllm bench serve --goodput` counts
(`calculate_metrics` in vllm/benchmarks/serve.py of 0.26.0 and 0.32.0): TTFT, TPOT (0 for a request of one token) and E2EL of
the request itself. vLLM has no limit on ITL; here a request's ITL is its longest gap between two tokens, the stall that
somebody sees, because the mean gap is its TPOT already.

The percentile of a limit is the share of requests that must be within it: `ttft_p99<500ms` is met when at least 99% of the
requests have a TTFT of 500 ms or less. It takes no part in counting goodput.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

from advisor.errors import InputError
from advisor.measure.summary import Requests
from advisor.records import Sample, SloLimit

_METRICS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2el_ms", "e2e": "e2el_ms"}
_TO_MS = {"ms": 1.0, "s": 1000.0}
_DEFAULT_SHARE = 0.99  # of a limit without a percentile
_TERM = re.compile(
    r"(?P<name>[a-z0-9]+)(?P<share>[_.][a-z0-9.]+)?\s*(?:<=|<)\s*(?P<limit>[^<=\s]+?)\s*(?P<unit>[a-z]*)"
)
_VLLM_TERM = re.compile(
    r"(?P<name>[a-z0-9]+):(?P<limit>[^:\s]+)"
)  # `ttft:500`, as its --goodput takes it: milliseconds
_EXAMPLE = 'write --slo "ttft_p99<500ms,tpot_p99<30ms"'


def parse_slo(text: str) -> tuple[SloLimit, ...]:
    """The limits in `ttft_p99<500ms,tpot<30ms`. Raises InputError naming the term that is wrong, and what is allowed."""
    terms = [term.strip() for term in text.lower().split(",")]
    limits = tuple(_limit(term) for term in terms)
    names = [limit.metric for limit in limits]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError(f"--slo {text!r} limits {twice.removesuffix('_ms')} twice", "keep the limit that is meant")
    return limits


def _limit(term: str) -> SloLimit:
    match = _TERM.fullmatch(term) or _VLLM_TERM.fullmatch(term)
    if match is None:
        raise InputError(f"--slo term {term!r} is not METRIC<LIMIT", _EXAMPLE)
    found = match.groupdict()
    if found["name"] not in _METRICS:
        raise InputError(f"--slo term {term!r}: metric {found['name']!r} is not known", "one of ttft, tpot, itl, e2el")
    return SloLimit(_METRICS[found["name"]], _limit_ms(term, found), _share(term, found.get("share")))


def _limit_ms(term: str, found: dict[str, str | None]) -> float:
    number, unit = found["limit"] or "", found.get("unit", "ms")
    if unit not in _TO_MS:
        raise InputError(f"--slo term {term!r}: the limit needs a unit, ms or s", _EXAMPLE)
    try:
        value = float(number) * _TO_MS[unit]
    except ValueError:
        raise InputError(f"--slo term {term!r}: {number!r} is not a number", _EXAMPLE) from None
    if not 0 < value < math.inf:
        raise InputError(f"--slo term {term!r}: the limit must be more than zero", _EXAMPLE)
    return value


def _share(term: str, word: str | None) -> float:
    if not word:
        return _DEFAULT_SHARE
    name = word[1:]
    try:
        percent = float(name.removeprefix("p")) if name.startswith("p") else math.nan
    except ValueError:
        percent = math.nan
    if not 0 < percent <= 100:
        problem = "a mean is no share of requests" if name == "mean" else f"{name!r} is out of range"
        raise InputError(
            f"--slo term {term!r}: {problem}",
            "give the share of requests that must comply: above p0, up to p100 (all); without one it is p99",
        )
    return round(percent / 100, 9)


# ---------------------------------------------------------------- one sample


def with_slo(sample: Sample, requests: Requests, slo: Sequence[SloLimit]) -> Sample:
    """The sample with its goodput and shares; as it is without an SLO. A request that failed complies with nothing."""
    if not slo:
        return sample
    within = [_within(requests, limit) for limit in slo]
    good = sum(map(all, zip(*within, strict=True)))
    sent = max(requests.sent, 1)
    return dataclasses.replace(
        sample,
        goodput_requests_s=good / sample.duration_s if sample.duration_s > 0 else 0.0,
        slo_share=good / sent,
        slo_within={limit.label: sum(row) / sent for limit, row in zip(slo, within, strict=True)},
    )


def _within(requests: Requests, limit: SloLimit) -> list[bool]:
    """For each completed request, in the order of sending, whether it is within the limit."""
    return [seconds * 1000 <= limit.limit_ms for seconds in _figures_s(requests, limit.metric)]


def _figures_s(requests: Requests, metric: str) -> Sequence[float]:
    if metric == "ttft_ms":
        return requests.ttft_s
    if metric == "e2el_ms":
        return requests.latency_s
    if metric == "itl_ms":
        return requests.longest_gap_s
    rows = zip(requests.latency_s, requests.ttft_s, requests.output_tokens, strict=True)
    return [(latency - ttft) / (tokens - 1) if tokens > 1 else 0.0 for latency, ttft, tokens in rows]


# ---------------------------------------------------------------- several samples


def compliance(samples: Sequence[Sample], slo: Sequence[SloLimit]) -> dict[str, float]:
    """Label of each limit -> share of the requests within it, all samples together. Empty where nothing was counted."""
    counted = [sample for sample in samples if sample.slo_within and not sample.problems]
    sent = sum(sample.requests + sample.failed for sample in counted)
    if not sent:
        return {}
    return {
        limit.label: sum(s.slo_within.get(limit.label, 0.0) * (s.requests + s.failed) for s in counted) / sent
        for limit in slo
    }


def breaches(samples: Sequence[Sample], slo: Sequence[SloLimit]) -> list[str]:
    """Each limit that too few requests keep, in words; empty: the SLO is met. Samples that were not counted break nothing."""
    shares = compliance(samples, slo)
    missed = [limit for limit in slo if limit.label in shares and shares[limit.label] < limit.share - 1e-9]
    return [
        f"{limit.label}: {shares[limit.label]:.1%} of the requests are within {limit.limit_ms:g} ms" for limit in missed
    ]


def violation(samples: Sequence[Sample], slo: Sequence[SloLimit]) -> float:
    """How far the SLO is missed: the largest shortfall of a share, 0 to 1; 0 where it is met."""
    shares = compliance(samples, slo)
    return max((max(0.0, limit.share - shares[limit.label]) for limit in slo if limit.label in shares), default=0.0)
