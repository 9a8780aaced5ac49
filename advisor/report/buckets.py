"""`advisor buckets` for people: what was planned for, one line a number of graphs, the list to take and its flag. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.report.wrapping import wrapped

_FLAG = "    "
_ROOM = 16  # columns of a list of sizes, at least
_HEAD = ("graphs", "step ms", "padding saved", "charged", "no graph", "GiB", "s", "sizes")


def buckets_lines(told: Mapping[str, Any], width: int | None = None) -> list[str]:
    """The answer of advisor/search/buckets.py as lines; for a terminal of `width` columns none is longer, but for the flag's."""
    seen, costs, prices = told["histogram"], told["graph_costs"], told["prices"]
    above = [
        told["limits"],
        f"batches: {seen['steps']:,.0f} steps of {seen['least']} to {seen['most']} tokens, mean {seen['mean']:.1f} "
        f"({seen['source']})",
        f"a graph: {costs['gib']:.3f} GiB, {costs['seconds']:.2f} s of the start; prices: {prices['kv_gib']:g} GiB of KV cache, "
        f"full {100 * prices['pressure']:g}% of the time; {prices['lifetime_s'] / 3600:g} h between two starts",
    ]
    named = [("default", told["default"]), *([("as served", told["today"])] if told["today"] else [])]
    plans = [*named, *(("", plan) for plan in told["plans"])]
    table = _table([_figures(name, plan) for name, plan in plans], [(name, plan["sizes"]) for name, plan in plans], width)
    below = [
        "padding saved: of the time that vLLM's own list loses by padding and by steps without a graph; charged: change of the "
        "step time against that list, the graphs' memory and seconds included at these prices; no graph: share of the steps",
    ]
    chosen = _chosen(told["recommended"], told["default"], told["operating_point"])
    notes = [f"note: {sentence}" for sentence in told["assumed"]]
    return [
        *wrapped(above, width), "", *table, "", *wrapped(below, width), "",
        *(piece for line in chosen for piece in ([line] if line.startswith(_FLAG) else wrapped([line], width))),
        "", *wrapped(notes, width),
    ]  # fmt: skip


def _figures(name: str, plan: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(plan["graphs"]),
        f"{plan['step_ms']:.3f}",
        "" if name else _saved(plan["padding_saved_percent"]),
        "" if name else f"{plan['charged_time_percent']:+.2f}%",
        f"{plan['outside_graphs_percent']:.1f}%",
        f"{plan['graph_gib']:.2f}",
        f"{plan['capture_s']:.1f}",
    )


def _saved(percent: float | None) -> str:
    """A list that adds more than vLLM's own saves nothing: how often as much it adds."""
    if percent is None:
        return "-"
    return f"{percent:.1f}%" if percent >= 0 else f"{1 - percent / 100:.3g}x added"


def _table(rows: Sequence[tuple[str, ...]], lists: Sequence[tuple[str, Sequence[int]]], width: int | None) -> list[str]:
    """Figures, and behind them as much of each list of sizes as there is room for."""
    head = _HEAD[:-1]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    left = ["  ".join(f"{cell:>{wide}}" for cell, wide in zip(row, widths, strict=True)) for row in (head, *rows)]
    room = max(_ROOM, width - len(left[0]) - 2) if width else None
    right = [_HEAD[-1], *(_sizes(sizes, room, f" ({name})" if name else "") for name, sizes in lists)]
    return [f"{one}  {other}" for one, other in zip(left, right, strict=True)]


def _sizes(sizes: Sequence[int], room: int | None, behind: str) -> str:
    """At most twelve of them, and fewer where there is not room for so many characters."""
    if not sizes:
        return "none" + behind
    texts = [str(size) for size in sizes]
    if len(texts) <= 12 and (room is None or len(" ".join(texts)) + len(behind) <= room):
        return " ".join(texts) + behind
    for first, last in ((7, 3), (5, 2), (4, 1), (3, 1), (2, 1), (1, 1)):
        text = f"{' '.join(texts[:first])} .. {' '.join(texts[-last:])}{behind}"
        if first + last < len(texts) and (room is None or len(text) <= room):
            return text
    return f"{len(texts)} sizes{behind}"


def _chosen(plan: Mapping[str, Any], default: Mapping[str, Any], largest: int) -> list[str]:
    if not plan["sizes"]:
        return ["no list is better than none: a step without a graph is as quick"]
    change = plan["step_time_percent"]
    lines = [
        f"{plan['graphs']} {'graph' if plan['graphs'] == 1 else 'graphs'}: {' '.join(map(str, plan['sizes']))}",
        f"against vLLM's own list: step time {change:+.2f}%, {default['graph_gib'] - plan['graph_gib']:+.2f} GiB for the KV cache, "
        f"{plan['capture_s'] - default['capture_s']:+.1f} s of the start (planned, not measured)",
        f"{_FLAG}{plan['flag']}",
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
