"""The JSON document of `advisor attention`: what is measured under which conditions, and going on with one that is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.attention.arms import Arm
from advisor.attention.grid import Cell
from advisor.attention.measure import MEASURED, OTHER, to_repeat
from advisor.attention.rows import by_key
from advisor.attention.traces import to_trace
from advisor.attention.winners import comparison
from advisor.attention.words import sentences
from advisor.errors import InputError
from advisor.journal import write_atomically
from advisor.stepping import files

SCHEMA = "advisor.attention/1"
# What must be equal for the figures of one document to be comparable.
_SAME = ("gpu", "versions", "model", "serve_args", "env", "steps", "chunk")
_DERIVED = ("noise", "cells", "words")  # written last, and anew every time


def opened(path: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """The document at `path`, or a new one with `head`. Raises InputError where other conditions are in the file."""
    found = files.opened(path, head, SCHEMA, _SAME)
    empty = {"default": None, "legal": [], "backends_error": None, "refused": [], "left_out": [], "backends": {}}
    return {**empty, **found} if "backends" in found else {**found, **empty}


def read(path: Path) -> dict[str, Any]:
    """A whole document, with the sentences of this release. Raises InputError where `path` holds none."""
    if not path.exists():
        raise InputError(f"{path} is not there", "`advisor attention --model MODEL` writes such a file")
    found = files.parsed(path, SCHEMA, "name a file that `advisor attention` wrote")
    needed = ("model", "gpu", "versions", "date", "chunk", "default", "legal", "left_out", "refused", "backends")
    if missing := [name for name in needed if name not in found]:
        raise InputError(f"{path} is not complete: it has no {', '.join(missing)}")
    return with_comparison(found)


def planned(
    document: dict[str, Any], legal: Sequence[Arm], refused: Iterable[tuple[str, str]], error: str | None
) -> None:
    """Takes over which backends there are: all legal ones of this vLLM, its own choice first, and the reasons of the others.

    The own choice has the name that was foretold until an engine has said what really runs.
    """
    document["default"] = document["default"] or legal[0].name
    names = [document["default"] if arm.default else arm.name for arm in legal]
    document["legal"], document["backends_error"] = list(dict.fromkeys(names)), error
    document["refused"] = [{"backend": name, "reason": reason} for name, reason in refused]


def left_out(document: dict[str, Any], cells: Iterable[tuple[Cell, str]]) -> None:
    """Adds cells that do not fit; those of earlier commands stay."""
    known = by_key(document["left_out"])
    for cell, reason in cells:
        known[cell.key] = {"phase": cell.phase, "batch": cell.batch, "context": cell.context, "reason": reason}
    document["left_out"] = list(known.values())


def is_done(state: Mapping[str, Any] | None, arm: Arm, cells: Sequence[Cell], gpu: bool) -> bool:
    """Whether a backend needs no start: all cells were answered, those of vLLM's own choice twice, and on a GPU traced; or vLLM
    runs another instead.
    """
    if state is None or state["status"] not in (MEASURED, OTHER):
        return False
    if state["status"] == OTHER:
        return True
    known = by_key(state["rows"])
    if not all(cell.key in known for cell in cells) or (arm.default and to_repeat(cells, state["rows"])):
        return False
    return not (gpu and to_trace(cells, state["rows"]))


def save(path: Path, document: dict[str, Any]) -> None:
    write_atomically(path, files.text(with_comparison(document)) + "\n")


def with_comparison(document: dict[str, Any]) -> dict[str, Any]:
    """With what follows from the figures: noise, winners, sentences."""
    for name in _DERIVED:
        document.pop(name, None)
    default, backends = document["default"], document["backends"]
    order = sorted(backends, key=lambda name: (name != default, _place(name, document["legal"])))
    document["backends"] = {name: backends[name] for name in order}
    document |= comparison(document["backends"], default)
    document["words"] = sentences(document)
    return document


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)
