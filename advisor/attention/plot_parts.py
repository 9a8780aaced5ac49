"""What the heat map of `advisor attention` shows: panels of squares, each with its colour's owner and its words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.attention.grid import PHASES
from advisor.attention.phrases import names_of, place
from advisor.attention.rows import Key, is_measured, key_of
from advisor.attention.winners import AHEAD, TIE, UNSTEADY, WINS
from advisor.stepping.figures import bare_ms

_SHORT = {
    "FLASH_ATTN": "FA", "FLASHINFER": "FI", "TRITON_ATTN": "TR", "FLEX_ATTENTION": "FX", "CPU_ATTN": "CPU",
    "FLASH_ATTN_MLA": "FAM", "FLASHMLA": "FM", "FLASHINFER_MLA": "FIM", "TRITON_MLA": "TRM", "CUTLASS_MLA": "CM",
}  # fmt: skip
# Owners of squares that no backend wins: a tie, several ahead together, one figure alone, none.
NOBODY, SEVERAL, SINGLE, EMPTY = "tie", "several", "single", "empty"


@dataclass(frozen=True)
class Square:
    """`owner`: the backend that wins, or one of the words above. `lines`: from the most important on, the first one large."""

    column: int
    row: int
    owner: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    title: str
    columns: tuple[int, ...]  # batch sizes
    rows: tuple[int, ...]  # contexts or lengths, upwards
    names: tuple[str, str]
    squares: tuple[Square, ...]


def panels(document: Mapping[str, Any]) -> list[Panel]:
    """One for each phase with a figure."""
    return [
        _panel(phase, cells, document)
        for phase in PHASES
        if (cells := [cell for cell in document["cells"] if cell["phase"] == phase])
    ]


def _panel(phase: str, cells: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> Panel:
    out = [one for one in (*document["left_out"], *_refused(document["backends"])) if one["phase"] == phase]
    columns = tuple(sorted({one["batch"] for one in (*cells, *out)}))
    rows = tuple(sorted({one["context"] for one in (*cells, *out)}))
    found = {place(one): (EMPTY, ("does not\nfit",)) for one in out}
    found |= {place(cell): _square_of(cell, document) for cell in cells}
    squares = tuple(
        Square(column, row, *found.get((batch, context), (EMPTY, ("not\nmeasured",))))
        for row, context in enumerate(rows)
        for column, batch in enumerate(columns)
    )
    title = phase if phase != "mixed" else f"mixed (chunk {document['chunk']})"
    return Panel(title, columns, rows, names_of(phase), squares)


def _refused(backends: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of cells that an engine had no room for."""
    rows = [row for backend in backends.values() for row in backend["rows"]]
    return [row for row in rows if not is_measured(row) and not row["failed"]]


def _square_of(cell: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    outcome, best = cell["outcome"], cell["best"]
    if outcome == UNSTEADY:
        return EMPTY, ("unsteady",)
    took = f"{bare_ms(_ms(document['backends'][best], (cell['phase'], *place(cell))))} ms"
    if outcome == WINS:
        return best, (short(best), lead(cell, document["default"]), took)
    if outcome == AHEAD:
        return SEVERAL, ("=".join(map(short, cell["tied"][:2])), lead(cell, document["default"]), took)
    return (NOBODY, ("tie", took)) if outcome == TIE else (SINGLE, (took,))


def _ms(backend: Mapping[str, Any], key: Key) -> float | None:
    return next((row["step_ms"] for row in backend["rows"] if key_of(row) == key and is_measured(row)), None)


def lead(cell: Mapping[str, Any], default: str | None) -> str:
    """`+7%`: by how much longer the step of vLLM's own choice takes; where that one wins, that of the next one."""
    if cell["best"] == default or cell["over_default"] is None:
        return f"next {cell['over_next']:+.0%}"
    return f"{cell['over_default']:+.0%}"


def short(name: str) -> str:
    """`FA3` for FLASH_ATTN:3."""
    backend, _, version = name.partition(":")
    return _SHORT.get(backend, "".join(word[0] for word in backend.split("_") if word)) + version


def named(document: Mapping[str, Any], order: Sequence[str]) -> list[str]:
    """Backends that squares name, in `order`, for the legend."""
    found = {name for cell in document["cells"] if cell["outcome"] in (WINS, AHEAD) for name in cell["tied"]}
    return [name for name in order if name in found]
