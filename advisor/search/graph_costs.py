"""What a captured graph costs, and what that is worth in step time. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.records import Active

_KV_GIB = re.compile(r"Available KV cache memory: (?P<gib>[\d.]+) GiB")  # of one worker; 0.9.0 to 0.33.0


@dataclass(frozen=True)
class GraphCosts:
    """Of one size in the list, whatever kinds of graphs are captured for it: GiB of GPU memory and seconds of the start."""

    gib: float
    seconds: float
    source: str


ASSUMED_COSTS = GraphCosts(
    0.98 / 51, 5 / 51, "assumed: as Llama-3.1-8B on an H200 with vLLM 0.26.0, 0.98 GiB and 5 s for 51 sizes"
)


def costs_of(active: Active, source: str) -> GraphCosts | None:
    """Of a launch by its own log, evenly over its sizes; None where it captured nothing or does not say.

    The seconds in the log are whole ones. The memory is what the driver gave out meanwhile; it can be below zero.
    """
    if not active.capture_sizes or active.graph_memory_gib is None or active.capture_s is None:
        return None
    count = len(active.capture_sizes)
    said = f"{source}: {active.graph_memory_gib:g} GiB and {active.capture_s:g} s for {count} sizes"
    return GraphCosts(max(0.0, active.graph_memory_gib) / count, active.capture_s / count, said)


def available_kv_gib(log_text: str) -> float | None:
    """GiB of KV cache on each GPU, as a server's log says."""
    found = _KV_GIB.search(log_text)
    return float(found["gib"]) if found and float(found["gib"]) > 0 else None


@dataclass(frozen=True)
class Prices:
    """What memory and start-up are worth, as a share of the step time.

    A GiB of graphs takes 1 / `kv_gib` of the KV cache and, where the cache is what limits the batch, as much of the throughput:
    `pressure` is the share of the time in which it does (1: always). A second of start-up is one of `lifetime_s`, for
    which the server then runs.
    """

    kv_gib: float = 40.0
    pressure: float = 1.0
    lifetime_s: float = 86400.0

    def share(self, gib: float, seconds: float) -> float:
        """0.01: as dear as one percent of the step time."""
        return self.pressure * gib / self.kv_gib + seconds / self.lifetime_s


PRICES = Prices()
