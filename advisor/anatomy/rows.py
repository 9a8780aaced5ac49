"""One line of the table for each mode and batch size: timings, trace and floor put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.stepping.figures import step_figures

# Times are milliseconds a step. A figure that could not be had is None, and `reason` says why.
DECODE = (
    "batch", "context_tokens", "step_ms", "step_low_ms", "step_high_ms", "steady", "attempts", "gpu_ms", "host_ms",
    "gpu_idle_ms", "gpu_idle_low_ms", "gpu_idle_high_ms", "serial_ms",
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

    `gpu_ms` is time in which the GPU worked at all, of traced steps; `host_ms` what the host did for a step, timed by itself.
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
        "host_ms": _median(timed.get("host_ms")),
        "floor_ms": None if floor_ms is None else round(floor_ms, 4),
    }
    return {**row, **_traced(traced, step)}


def prefill_row(tokens: int, timed: Mapping[str, Any], traced: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same for one prompt of `tokens` tokens. The host is not timed in it."""
    row: dict[str, Any] = {"tokens": tokens, "step_ms": None, "gpu_ms": None, "gpu_idle_ms": None, "launches": None}
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
    """What a trace tells, and for how long of the step the GPU had nothing to do."""
    if traced is None:
        return {"reason": "not traced"}
    if not traced["ok"]:
        return {"reason": f"not traced: {traced['error']}"}
    found = {name: traced.get(name) for name in _TRACED}
    if (gpu_ms := found["gpu_ms"]) is not None:
        found |= gpu_idle(step, gpu_ms)
    return {**found, "reason": traced.get("gpu_reason")}


def gpu_idle(step: Mapping[str, float], gpu_ms: float) -> dict[str, float | None]:
    """The time of a step in which the GPU had nothing to do: a difference of two measured times, of different steps.

    So it is only told where its interval, that of the steps' quartiles, is above zero. The gaps in the trace itself are no answer:
    the profiler slows the host, and the GPU waits for it longer than in a step that nothing watches.
    """
    low, middle, high = (round(max(step[which] - gpu_ms, 0.0), 4) for which in ("low", "median", "high"))
    return {"gpu_idle_ms": middle if low > 0 else None, "gpu_idle_low_ms": low, "gpu_idle_high_ms": high}
