"""Why a mode has no figure at a batch size: for a sentence, a claim or a cell of a table that has nothing to say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.anatomy.modes import TITLES


def why_missing(modes: Mapping[str, Mapping[str, Any]], name: str, batch: int) -> str | None:
    """What follows the mode's title: `was not run`, `is 'compile only' here` ...; None where a steady figure is there."""
    mode = modes.get(name)
    if mode is None:
        return "was not run"
    if same := mode.get("same_as"):
        return f"is '{TITLES[same]}' here"
    row = next((row for row in mode.get("decode", ()) if row["batch"] == batch), None)
    if row is None:
        return f"was not measured at batch {batch}" if mode.get("decode") else "could not be run"
    if row["step_ms"] is None:
        return f"could not be measured at batch {batch}"
    return None if row["steady"] else f"was not steady at batch {batch}"


def told_missing(modes: Mapping[str, Mapping[str, Any]], names: Sequence[str], batch: int) -> str:
    """`not measured: 'full graphs only' was not run, ...` of those of `names` that have no figure."""
    found = {name: why_missing(modes, name, batch) for name in names}
    told = ", ".join(f"'{TITLES[name]}' {why}" for name, why in found.items() if why)
    return f"not measured: {told}" if told else "not measured"
