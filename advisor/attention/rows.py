"""One line of figures for each backend and cell. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.attention.grid import PHASES, Cell
from advisor.stepping.figures import is_steady, step_figures

Key = tuple[str, int, int]
REFUSED = ("Refusal",)  # error types that are an answer, and not the failure of an engine
LATE = "Late"
REASON = 400  # characters


def row_of(cell: Cell, answer: Mapping[str, Any], clean: Callable[[str], str]) -> dict[str, Any]:
    """`answer`: of advisor/target/attention.py. Times are milliseconds a step; without them `reason` says why.

    `failed` tells that the engine broke down at it; a cell that does not fit has only a reason.
    """
    row: dict[str, Any] = {"phase": cell.phase, "batch": cell.batch, "context": cell.context}
    if cell.chunk:
        row["chunk"] = cell.chunk
    if not answer["ok"]:
        told = answer["error"] if is_refusal(answer) else f"{answer['error_type']}: {answer['error']}"
        return {**row, "step_ms": None, "failed": not is_refusal(answer), "reason": clean(told)[:REASON]}
    return {
        **row, **step_figures(answer["step_ms"]), "slowest_ms": answer["slowest_ms"],
        "context_tokens": answer["context_tokens"], "steps": answer["steps"], "fill_s": answer["fill_s"],
        "again_ms": None, "reason": None,
    }  # fmt: skip


def with_repeat(row: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The row of vLLM's own choice with its second measurement: `again_ms`, and whether those steps were steady.

    One that is refused or fails is not tried again: there is a figure already.
    """
    if not answer["ok"]:
        return {**row, "again_steady": False}
    return {**row, "again_ms": answer["step_ms"]["median"], "again_steady": is_steady(answer["step_ms"])}


def is_refusal(answer: Mapping[str, Any]) -> bool:
    return answer.get("error_type") in REFUSED


def key_of(row: Mapping[str, Any]) -> Key:
    return row["phase"], row["batch"], row["context"]


def by_key(rows: Sequence[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    return {key_of(row): row for row in rows}


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As people read them, whatever was measured first."""
    return sorted(rows, key=lambda row: (PHASES.index(row["phase"]), row["context"], row["batch"]))


def is_traced(row: Mapping[str, Any]) -> bool:
    """Whether its GPU time is told; what older files hold has none."""
    return row.get("gpu_ms") is not None


def is_measured(row: Mapping[str, Any]) -> bool:
    return row["step_ms"] is not None
