"""One line of the table for each mode and batch size: timings, trace and floor put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.stepping.figures import step_figures

# Times are milliseconds a step. A figure that could not be had is None, and `reason` says why.
DECODE = (
    "batch", "context_tokens", "step_ms", "step_low_ms", "step_high_ms", "steady", "attempts", "gpu_ms", "host_ms", "host_low_ms",
    "host_high_ms", "host_work_ms", "serial_ms",
    "launches", "graph_launches", "kernels", "floor_ms", "traced_ms", "launch_us", "graph_launch_us", "operators",
    "outer_operators", "operators_ms", "top_kernels", "reason",
)  # fmt: skip
_TRACED = (
    "gpu_ms", "launches", "graph_launches", "kernels", "traced_ms", "launch_us", "graph_launch_us", "operators",
    "outer_operators", "operators_ms", "top_kernels",
)  # fmt: skip


def decode_row(
    batch: int, timed: Mapping[str, Any], traced: Mapping[str, Any] | None, floor_ms: float | None
) -> dict[str, Any]:
    """`timed` and `traced`: answers of advisor/target/anatomy.py, of which either may be a refusal.

    `gpu_ms` is time in which the GPU worked at all, and `host_ms` the rest of a step: the time in which it had nothing to do.
    The profiler slows the host and hardly the kernels, so the step's own time comes from steps that nothing watched.
    """
    row: dict[str, Any] = {**dict.fromkeys(DECODE), "batch": batch}
    if not timed["ok"]:
        return {**row, "reason": timed["error"]}
    step = timed["step_ms"]
    row |= {
        "context_tokens": timed["context_tokens"],
        **step_figures(step),
        "attempts": timed.get("attempts", 1),
        "serial_ms": _median(timed.get("serial_ms")),
        "host_work_ms": _median(timed.get("host_work_ms")),
        "floor_ms": None if floor_ms is None else round(floor_ms, 4),
    }
    return {**row, **_traced(traced, step)}


def prefill_row(tokens: int, timed: Mapping[str, Any], traced: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same for one prompt of `tokens` tokens."""
    row: dict[str, Any] = {"tokens": tokens, "step_ms": None, "gpu_ms": None, "host_ms": None, "launches": None}
    if not timed["ok"]:
        return {**row, "reason": timed["error"]}
    step = timed["step_ms"]
    row |= {
        "chunks": timed["chunks"],
        **step_figures(step),
        "attempts": timed.get("attempts", 1),
    }
    return {**row, **_traced(traced, step)}


def _median(quartiles: Mapping[str, float] | None) -> float | None:
    return quartiles["median"] if quartiles else None


def _traced(traced: Mapping[str, Any] | None, step: Mapping[str, float]) -> dict[str, Any]:
    """What a trace tells, and the rest of the step: of its median and of its quartiles, so that their noise is seen."""
    if traced is None:
        return {"reason": "not traced"}
    if not traced["ok"]:
        return {"reason": f"not traced: {traced['error']}"}
    found = {name: traced.get(name) for name in _TRACED}
    if (gpu_ms := found["gpu_ms"]) is not None:
        names = {"host_ms": "median", "host_low_ms": "low", "host_high_ms": "high"}
        found |= {name: round(max(step[which] - gpu_ms, 0.0), 4) for name, which in names.items()}
    return {**found, "reason": traced.get("gpu_reason")}
