"""What the server counts about itself: its /metrics page before and after a sample, and the difference."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

# Field of Counters -> vLLM's name (0.26.0 and 0.32.0), summed over labels (engine, model, reason of the end).
_NAMES = {
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "requests": "vllm:request_success_total",
    "latency_s": "vllm:e2e_request_latency_seconds_sum",  # a histogram, named alike from 0.9.0 to 0.33.0
}
_READ_TIMEOUT_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Counters:
    """Counters since the server's start, or of an interval. Tokens where not said otherwise; None: not on the page."""

    prefix_hits: float | None = None  # prompt tokens found in the prefix cache
    prefix_queries: float | None = None  # prompt tokens looked up in it
    preemptions: float | None = None  # times a running request lost its cache blocks
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests: float | None = None  # that ended, whatever the reason
    latency_s: float | None = None  # seconds from arrival to last token, of all requests that ended together

    @property
    def prefix_hit_ratio(self) -> float | None:
        """Cached prompt tokens over all prompt tokens; None where the server does not say."""
        whole = max(self.prompt_tokens or 0, self.prefix_queries or 0)
        return None if self.prefix_hits is None or not whole else self.prefix_hits / whole


def parse(text: str) -> Counters:
    """Counters in a page of the Prometheus text format. Raises ValueError where it is not one."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return Counters(**{field: sums.get(name) for field, name in _NAMES.items()})


def difference(before: Counters | None, after: Counters | None) -> Counters | None:
    """What was counted in between; None where either page could not be read.

    A counter that appears only afterwards started at zero. Negative differences are kept: the server was restarted.
    """
    if before is None or after is None:
        return None
    pairs = ((f.name, getattr(before, f.name), getattr(after, f.name)) for f in dataclasses.fields(Counters))
    return Counters(**{name: None if new is None else new - (old or 0.0) for name, old, new in pairs})


def read(server_url: str) -> Counters | None:
    """The counters now; None where the server has no readable /metrics page (its owner may have switched it off)."""
    try:
        # Proxies of the environment are not for a server of this machine, and without verify=False the certificates are read
        # from disk each time, for an address that has no TLS.
        page = httpx.get(f"{server_url}/metrics", timeout=_READ_TIMEOUT_S, trust_env=False, verify=False)
        page.raise_for_status()
        return parse(page.text)
    except (httpx.HTTPError, ValueError):
        return None


def read_settled(server_url: str, before: Counters | None, requests: int, limit_s: float = 2.0) -> Counters | None:
    """The counters as soon as `requests` more have ended than in `before`, or after `limit_s`.

    The server counts a request just after its last token went out, so that a page read at once can lack the last ones.
    """
    deadline = time.monotonic() + limit_s
    while True:
        now = read(server_url)
        ended = difference(before, now)
        if ended is None or ended.requests is None or ended.requests >= requests or time.monotonic() >= deadline:
            return now
        time.sleep(_POLL_S)
