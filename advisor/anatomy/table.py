"""An anatomy on a terminal: tables, sentences, claims. Pure: the document in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from advisor.anatomy.modes import what_runs
from advisor.anatomy.square import HEADER, square
from advisor.stepping.figures import bare_ms
from advisor.stepping.tables import WIDTH, drawn, table


def told(document: Mapping[str, Any], width: int = WIDTH) -> str:
    """Everything, in the order in which it answers: steps of all modes, what they are made of, prefill, starts, words."""
    modes = document["modes"]
    tables = [_steps(modes), _square(modes), _parts(modes), _prefill(modes), _starts(modes)]
    texts = [_head(document), *(drawn(one, width) for one in tables if one.row_count)]
    texts += ["\n".join([*document["words"], *_missing(modes)]), _claims(document["claims"])]
    return "\n\n".join(filter(None, texts))


def _head(document: Mapping[str, Any]) -> str:
    model, versions = document["model"], document["versions"]
    weights = " (random weights)" if model["random_weights"] else ""
    bandwidth = document.get("bandwidth")
    copied = (
        f"; copies {bandwidth['gb_s']:,.0f} GB/s, read and written together ({bandwidth['copied_bytes'] >> 20} MiB)"
        if bandwidth
        else ""
    )
    return f"{model['name']}{weights}, {document['gpu']['name']}, vLLM {versions['vllm']}, context {document['context']}{copied}"


def _steps(modes: Mapping[str, Mapping[str, Any]]) -> Table:
    """Batch sizes down, modes across, and the floor."""
    shown = {name: mode for name, mode in modes.items() if any(row["step_ms"] is not None for row in mode["decode"])}
    made = table("decode step, ms (median)", (), ("batch", *(mode["title"] for mode in shown.values()), "floor"))
    rows = {name: {row["batch"]: row for row in mode["decode"]} for name, mode in shown.items()}
    for batch in sorted({batch for found in rows.values() for batch in found}):
        cells = [found.get(batch, {}) for found in rows.values()]
        floor = next((cell["floor_ms"] for cell in cells if cell.get("floor_ms") is not None), None)
        made.add_row(str(batch), *(starred(cell) for cell in cells), bare_ms(floor))
    return made


def _square(modes: Mapping[str, Mapping[str, Any]]) -> Table:
    """Compilation down, graphs across."""
    made = table("ms a step (the floor's share of it)", (), HEADER)
    for line in square(modes):
        made.add_row(*line)
    return made


_PARTS = {
    "batch": "batch", "step_ms": "step", "step_low_ms": "quartiles", "serial_ms": "drained",
    "gpu_ms": "GPU", "host_ms": "host", "gpu_idle_ms": "GPU idle", "launches": "launches", "kernels": "kernels",
    "operators": "operators", "outer_operators": "outermost", "operators_ms": "in operators", "floor_ms": "floor",
}  # fmt: skip


def _parts(modes: Mapping[str, Mapping[str, Any]]) -> Table:
    """What each step is made of; columns that nothing was measured for are left out."""
    rows = [(mode["title"], row) for mode in modes.values() for row in mode["decode"]]
    names = [name for name in _PARTS if any(row.get(name) is not None for _, row in rows)]
    made = table("of each step, ms, and numbers a step", ("",), [_PARTS[name] for name in names])
    for title, row in rows:
        if row["step_ms"] is None:
            made.add_row(title, str(row["batch"]), f"not measured: {row['reason']}")
        else:
            made.add_row(
                title, *(_SPECIAL[name](row) if name in _SPECIAL else _cell(name, row.get(name)) for name in names)
            )
    return made


def _prefill(modes: Mapping[str, Mapping[str, Any]]) -> Table:
    made = table("prefill of one prompt, ms", ("",), ("tokens", "steps", "time", "quartiles", "GPU", "tokens/s"))
    for mode in modes.values():
        for row in mode["prefill"]:
            if row["step_ms"] is None:
                made.add_row(mode["title"], str(row["tokens"]), "", f"not measured: {row['reason']}")
                continue
            speed = f"{row['tokens'] / row['step_ms'] * 1000:,.0f}"
            cells = [starred(row), _quartiles(row), bare_ms(row.get("gpu_ms")), speed]
            made.add_row(mode["title"], str(row["tokens"]), str(row["chunks"]), *cells)
    return made


def _starts(modes: Mapping[str, Mapping[str, Any]]) -> Table:
    """Seconds and their parts; of a mode that was not started, how it ended (why is told below the tables)."""
    names = ("start_s", "imports_s", "load_s", "engine_init_s", "compile_s", "capture_s", "kernels_s")
    parts = ("start", "imports", "load", "init", "compile", "capture", "kernels", "cache", "graphs GiB")
    made = table("start, s (cache: of compiled code)", ("",), parts, ("runs",))
    for mode in modes.values():
        start = mode.get("start") or {}
        runs = what_runs(mode["resolved"]) if start else mode["status"]
        seconds = ["" if start.get(name) is None else f"{start[name]:.1f}" for name in names]
        memory = start.get("graph_memory_gib")
        made.add_row(mode["title"], runs, *seconds, start.get("cache") or "", "" if memory is None else f"{memory:.2f}")
    return made


def _missing(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Modes that were not run or broke off, and why rows that have a time lack what a trace tells, each reason once."""
    told = [f"{mode['title']}: {mode['status']}: {mode['reason']}" for mode in modes.values() if mode["reason"]]
    rows = [row for mode in modes.values() for row in mode["decode"] if row["step_ms"] is not None and row["reason"]]
    return told + [f"no GPU time and launches: {reason}" for reason in dict.fromkeys(row["reason"] for row in rows)]


def _claims(claims: Sequence[Mapping[str, str]]) -> str:
    return "\n".join(f"claim: {item['claim']}\n  here: {item['measured']}" for item in claims)


def starred(row: Mapping[str, Any]) -> str:
    """The step, with a star where it was not steady."""
    return "" if row.get("step_ms") is None else f"{bare_ms(row['step_ms'])}{'' if row['steady'] else '*'}"


def _quartiles(row: Mapping[str, Any]) -> str:
    return f"{bare_ms(row['step_low_ms'])}-{bare_ms(row['step_high_ms'])}"


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return bare_ms(value) if name.endswith("_ms") else f"{value:,.0f}"


_SPECIAL = {"step_ms": starred, "step_low_ms": _quartiles}
