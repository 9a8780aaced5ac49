"""Parts of sentences about cells, and the cells that one sentence is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.attention.grid import PREFILL
from advisor.attention.winners import AHEAD, WINS


def names_of(phase: str) -> tuple[str, str]:
    """What the two numbers of a cell are called."""
    return ("batch", "length") if phase == PREFILL else ("batch", "context")


def spot(cell: Mapping[str, Any]) -> str:
    """`decode 16 x 512`."""
    return f"{cell['phase']} {cell['batch']} x {cell['context']}"


def place(cell: Mapping[str, Any]) -> tuple[int, int]:
    return cell["batch"], cell["context"]


def grouped(cells: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Cells that somebody wins, by who does; most cells first."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        if cell["outcome"] in (WINS, AHEAD):
            found.setdefault((cell["outcome"], *sorted(cell["tied"])), []).append(cell)
    return sorted(found.values(), key=len, reverse=True)


def span(cells: Iterable[Mapping[str, Any]], name: str) -> str:
    """`7%`, `7% to 12%`."""
    values = [cell[name] for cell in cells if cell[name] is not None]
    low, high = f"{min(values):.0%}", f"{max(values):.0%}"
    return low if low == high else f"{low} to {high}"
