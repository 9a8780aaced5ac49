"""Times of steps: when they are steady, and how they are written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STEADY = 0.2  # the middle half of the steps lies within so much of the median; more is another program on this machine


def is_steady(step: Mapping[str, float]) -> bool:
    """`step`: median and quartiles."""
    return spread(step) <= STEADY


def spread(step: Mapping[str, float]) -> float:
    """Of the middle half of the steps, as a part of their median."""
    return (step["high"] - step["low"]) / step["median"]


def step_figures(step: Mapping[str, float]) -> dict[str, Any]:
    return {
        "step_ms": step["median"],
        "step_low_ms": step["low"],
        "step_high_ms": step["high"],
        "steady": is_steady(step),
    }


def ms(value: float) -> str:
    """`1.66 ms`, `0.071 ms`, `18.5 ms`."""
    return f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"


def bare_ms(value: float | None) -> str:
    """The same in a column that says what it is."""
    return "" if value is None else ms(value).removesuffix(" ms")


def steadier(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Of two answers to the same timing the one whose steps differ less; the first where the second failed."""
    return second if second["ok"] and spread(second["step_ms"]) < spread(first["step_ms"]) else first


def change(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.0f}%"
