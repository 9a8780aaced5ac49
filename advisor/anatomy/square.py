"""The two-by-two of an anatomy: compiled or not, with full graphs or without, at a few batch sizes. Pure.

A cell holds the step's milliseconds and, in brackets, the share of it that the floor is: 100% cannot be beaten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.anatomy.missing import why_missing
from advisor.anatomy.words import with_floor_that_holds
from advisor.stepping.figures import bare_ms

HEADER = ("batch", "floor, ms", "", "no graphs", "full graphs")
ROWS = (("not compiled", "none", "full"), ("compiled", "compile", "both"))
_NAMES = tuple(name for _, *names in ROWS for name in names)


def square(modes: Mapping[str, Mapping[str, Any]], batches: tuple[int, ...] | None = None) -> list[tuple[str, ...]]:
    """Two lines of text under HEADER for each batch size; none where fewer than two of the four modes were asked for."""
    if sum(name in modes for name in _NAMES) < 2:
        return []
    modes = with_floor_that_holds(modes)
    lines = []
    for batch in chosen(modes) if batches is None else batches:
        floor = floor_of(modes, batch)
        for (label, *names), head in zip(ROWS, ((str(batch), floor), ("", "")), strict=True):
            lines.append((*head, label, *(cell(modes, name, batch) for name in names)))
    return lines


def chosen(modes: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
    """The smallest, the middle and the largest batch size that one of the four modes was measured at."""
    found = sorted({
        row["batch"] for name in _NAMES for row in modes.get(name, {}).get("decode", ()) if row["step_ms"] is not None
    })  # fmt: skip
    return tuple(dict.fromkeys([found[0], found[len(found) // 2], found[-1]])) if found else ()


def cell(modes: Mapping[str, Mapping[str, Any]], name: str, batch: int) -> str:
    """`1.66 (19%)`, with a star where the steps were not steady; or why there is none."""
    rows = modes.get(name, {}).get("decode", ())
    row = next((row for row in rows if row["batch"] == batch and row["step_ms"] is not None), None)
    if row is None:
        return why_missing(modes, name, batch) or ""
    share = f" ({row['floor_ms'] / row['step_ms']:.0%})" if row.get("floor_ms") else ""
    return f"{bare_ms(row['step_ms'])}{'' if row['steady'] else '*'}{share}"


def floor_of(modes: Mapping[str, Mapping[str, Any]], batch: int) -> str:
    """Milliseconds: of the first mode that has it; the modes read the same."""
    floors = (row.get("floor_ms") for mode in modes.values() for row in mode.get("decode", ()) if row["batch"] == batch)
    return next((bare_ms(floor) for floor in floors if floor is not None), "")
