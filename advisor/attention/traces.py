"""Which cells are traced for the time that the GPU works in a step, and how, and what that adds to their rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.attention.grid import DECODE, MIXED, PREFILL, Cell
from advisor.attention.rows import REASON, by_key, is_measured, is_refusal

WINDOWS = 2  # traces of one row of steps, whose difference is the noise of the GPU's time
# Together at most a third of the steps that are timed; nothing is built any more, so that few come before them.
_WARMUP = {DECODE: 3, PREFILL: 1, MIXED: 2}
_STEPS = {DECODE: 3, PREFILL: 1, MIXED: 2}  # of each window
_SEED = 4  # timed rows have 0 to 3: these prompts are in no cache either
NO_TIME = "not traced: the traces before it took a third as long as the backend's start and its timed steps"


def to_trace(cells: Sequence[Cell], rows: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Cells with a time of steps, and neither a GPU time nor a reason for having none; in the order of `cells`."""
    known = by_key(rows)
    return [
        cell for cell in cells if cell.key in known and is_measured(known[cell.key]) and "gpu_ms" not in known[cell.key]
    ]


def trace_of(cell: Cell, limit_s: float) -> dict[str, Any]:
    """The request of advisor/target/attention.py."""
    request = {
        "do": "trace", "phase": cell.phase, "batch": cell.batch, "context": cell.context, "warmup": _WARMUP[cell.phase],
        "steps": WINDOWS * _STEPS[cell.phase], "windows": WINDOWS, "limit_s": round(limit_s, 1),
    }  # fmt: skip
    if cell.phase != DECODE:
        request["seed"] = _SEED
    return {**request, "chunk": cell.chunk} if cell.chunk else request


def with_gpu_time(row: Mapping[str, Any], answer: Mapping[str, Any], clean: Callable[[str], str]) -> dict[str, Any]:
    """The row with what a trace of such steps told: milliseconds a step in which the GPU had work, or null and the reason."""
    if answer["ok"] and (gpu := answer["gpu_ms"]):
        return {**row, "gpu_ms": gpu["mean"], "gpu_low_ms": gpu["low"], "gpu_high_ms": gpu["high"], "gpu_reason": None}
    refused = answer["ok"] or is_refusal(answer)
    told = answer["gpu_reason"] if answer["ok"] else answer["error"]
    return without_gpu_time(row, clean(told if refused else f"{answer['error_type']}: {told}"))


def without_gpu_time(row: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """It is not traced again: its steps are timed all the same."""
    return {**row, "gpu_ms": None, "gpu_reason": reason[:REASON]}
