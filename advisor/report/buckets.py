"""`advisor buckets` for people: what was planned for, one line a number of graphs, the list to take and its flag. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = ("graphs", "step ms", "padding saved", "charged", "no graph", "GiB", "s", "sizes")


def buckets_lines(told: Mapping[str, Any]) -> list[str]:
    """The answer of advisor/search/buckets.py as lines."""
    seen, costs, prices = told["histogram"], told["graph_costs"], told["prices"]
    lines = [
        told["limits"],
        f"batches: {seen['steps']:,.0f} steps of {seen['least']} to {seen['most']} tokens, mean {seen['mean']:.1f} "
        f"({seen['source']})",
        f"a graph: {costs['gib']:.3f} GiB, {costs['seconds']:.2f} s of the start; prices: {prices['kv_gib']:g} GiB of KV cache, "
        f"full {100 * prices['pressure']:g}% of the time; {prices['lifetime_s'] / 3600:g} h between two starts",
        "",
        *_table(
            [
                _row("default", told["default"]),
                *([_row("as served", told["today"])] if told["today"] else []),
                *(_row("", plan) for plan in told["plans"]),
            ]
        ),
        "",
        *_chosen(told["recommended"], told["default"], told["operating_point"]),
    ]
    return [*lines, "", *(f"note: {sentence}" for sentence in told["assumed"])]


def _row(name: str, plan: Mapping[str, Any]) -> tuple[str, ...]:
    saved = plan["padding_saved_percent"]
    sizes = _sizes(plan["sizes"])
    return (
        str(plan["graphs"]),
        f"{plan['step_ms']:.3f}",
        "" if name else "-" if saved is None else f"{saved:.1f}%",
        "" if name else f"{plan['charged_time_percent']:+.2f}%",
        f"{plan['outside_graphs_percent']:.1f}%",
        f"{plan['graph_gib']:.2f}",
        f"{plan['capture_s']:.1f}",
        f"{sizes} ({name})" if name else sizes,
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in (_HEAD, *rows)) for i in range(len(_HEAD) - 1)]
    return [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)) + f"  {row[-1]}"
        for row in (_HEAD, *rows)
    ]


def _sizes(sizes: Sequence[int]) -> str:
    """At most twelve of them."""
    if not sizes:
        return "none"
    if len(sizes) <= 12:
        return " ".join(map(str, sizes))
    return f"{' '.join(map(str, sizes[:7]))} .. {' '.join(map(str, sizes[-3:]))}"


def _chosen(plan: Mapping[str, Any], default: Mapping[str, Any], largest: int) -> list[str]:
    if not plan["sizes"]:
        return ["no list is better than none: a step without a graph is as quick"]
    change = plan["step_time_percent"]
    lines = [
        f"{plan['graphs']} graphs: {' '.join(map(str, plan['sizes']))}",
        f"against vLLM's own list: step time {change:+.2f}%, {default['graph_gib'] - plan['graph_gib']:+.2f} GiB for the KV cache, "
        f"{plan['capture_s'] - default['capture_s']:+.1f} s of the start (planned, not measured)",
        f"    {plan['flag']}",
    ]
    missed = plan["not_in_full_graph_percent"]
    if missed >= 0.05:
        lines.append(f"{missed:.1f}% of the steps decode in no FULL graph")
    if plan["sizes"][-1] < largest:
        lines.append(
            f"batches of more than {plan['sizes'][-1]} tokens (max_num_seqs allows {largest}) would run without a graph; "
            f"--cover {largest} keeps one for them"
        )
    return lines
