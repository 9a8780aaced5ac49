"""The figure that is optimised, and the limits that requests must keep."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass


@dataclass(frozen=True)
class SloLimit:
    """One limit of a service level objective: at least `share` of the requests must be at `limit_ms` or below."""

    metric: str  # of a single request: ttft_ms, tpot_ms, itl_ms (its longest gap between tokens) or e2el_ms
    limit_ms: float
    share: float = 0.99

    @property
    def label(self) -> str:
        """As a person writes it: `ttft_p99<500ms`."""
        return f"{self.metric.removesuffix('_ms')}_p{self.share * 100:g}<{self.limit_ms:g}ms"


@dataclass(frozen=True)
class Objective:
    """The figure that is optimised, those that are optimised with it, and the SLO (docs/objectives.md).

    `metric` and each of `secondary`: output_tok_s, requests_s, goodput, start_s, max_concurrency, max_rate, or a latency
    such as `ttft_ms.p99`. `find_load`: "concurrency" or "rate", which is raised on each launch as far as the SLO is met.
    """

    metric: str = "output_tok_s"
    secondary: tuple[str, ...] = ()
    slo: tuple[SloLimit, ...] = ()
    find_load: str | None = None

    @property
    def maximise(self) -> bool:
        return not (self.metric == "start_s" or self.metric.split(".")[0].endswith("_ms"))

    @property
    def metrics(self) -> tuple[str, ...]:
        return (self.metric, *self.secondary)

    @functools.cached_property
    def each(self) -> tuple[Objective, ...]:
        """One objective a metric, the first one first."""
        return tuple(dataclasses.replace(self, metric=metric, secondary=()) for metric in self.metrics)

    @property
    def slug(self) -> str:
        """Part of file names: empty for output tokens a second alone, else as `goodput-ttft500` or `output-tok-s-tpot30p90`."""
        words = [metric.replace("_ms.", "-").replace("_", "-") for metric in self.metrics]
        limits = [
            f"{limit.metric.removesuffix('_ms')}{limit.limit_ms:g}"
            + ("" if limit.share == SloLimit.share else f"p{limit.share * 100:g}")
            for limit in self.slo
        ]
        found = [f"max-{self.find_load}"] if self.find_load and f"max-{self.find_load}" not in words else []
        return "" if self == Objective() else "-".join([*words, *found, *limits])

    @property
    def constrained(self) -> bool:
        """Whether a candidate that breaks the SLO is out, whatever its figures. Goodput counts the breaches itself."""
        return bool(self.slo) and ("goodput" not in self.metrics or self.find_load is not None)
