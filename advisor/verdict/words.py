"""Words for figures, and for what a gain costs: the same in the terminal's lines and in the profile. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.records import Tradeoff
from advisor.units import number, percent

_COSTS = 3
_ALIKE = {"requests_s": "output_tok_s", "goodput": "output_tok_s", "itl_ms": "tpot_ms"}
_UNITS = {
    "output_tok_s": "output tok/s",
    "input_tok_s": "input tok/s",
    "requests_s": "requests/s",
    "goodput": "requests/s within the SLO",
    "start_s": "s to start",
    "max_concurrency": "requests in flight within the SLO",
    "max_rate": "requests/s arriving within the SLO",
}


def unit(metric: str) -> str:
    """`ttft_ms.p99` -> `ms TTFT p99`; a rate gets its own words."""
    name, _, percentile = metric.partition(".")
    if name in _UNITS:
        return _UNITS[name]
    return f"ms {name.removesuffix('_ms').upper()} {percentile}".strip()


def figure(metric: str, value: float) -> str:
    """`831.2 output tok/s`; of requests in flight there are no fractions, unless it is a mean of counts."""
    whole = metric == "max_concurrency" and float(value).is_integer()
    return f"{f'{value:,.0f}' if whole else number(value)} {unit(metric)}"


def changed(metric: str) -> str:
    """What has changed, without the unit of its figure: `TTFT p99`, `start-up time`."""
    return "start-up time" if metric == "start_s" else unit(metric).removeprefix("ms ")


def _where(item: Tradeoff) -> str:
    return "" if item.load is None else f" at load {item.load:g}"


def told_costs(tradeoffs: Sequence[Tradeoff]) -> str:
    """`, but TPOT p50 +27.0%, perhaps TTFT p50 +9.0%`: what a gain costs belongs into the same line. Worst first.

    Of figures that say the same thing (p50 and p99, requests and their tokens) the worst is named.
    """
    kinds: dict[str, Tradeoff] = {}
    for item in tradeoffs:
        name = item.metric.partition(".")[0]
        kind = _ALIKE.get(name, name)
        kinds[kind] = max(kinds.get(kind, item), item, key=lambda one: abs(math.log(one.ratio.value)))
    worst = [
        f"{'' if item.proven else 'perhaps '}{changed(item.metric)} {percent(item.ratio.value)}{_where(item)}"
        for item in list(kinds.values())[:_COSTS]
    ]
    more = len(kinds) - len(worst)
    return f", but {', '.join(worst)}{f' and {more} more' if more else ''}" if worst else ""
