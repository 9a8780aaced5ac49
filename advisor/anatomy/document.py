"""The JSON document of an anatomy: what is measured under which conditions, and going on with one that is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.anatomy.claims import claims
from advisor.anatomy.modes import TITLES
from advisor.anatomy.words import sentences
from advisor.errors import InputError
from advisor.journal import write_atomically

SCHEMA = "advisor.anatomy/1"
MEASURED, PARTLY, FAILED, SKIPPED = "measured", "partly", "failed", "skipped"
_ROW_DEPTH = 4  # document, modes, mode, decode, row
# What must be equal for the modes of one document to be comparable.
_SAME = ("gpu", "versions", "model", "serve_args", "env", "context", "steps")


def opened(path: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """The document at `path`, or a new one with `head`. Raises InputError where other conditions are in the file.

    Of one that is there everything measured stays, its first date and command too; the present command is added to `commands`.
    """
    found = _read(path)
    if found is None:
        return {"schema": SCHEMA, **head, "commands": [head["command"]], "modes": {}}
    for name in _SAME:
        if found.get(name) != json.loads(json.dumps(head[name])):
            raise InputError(
                f"{path} was measured with another {name}: {_short(found.get(name))} there, {_short(head[name])} now",
                "give another --output",
            )
    commands = list(dict.fromkeys([*found.get("commands", []), head["command"]]))
    return {**found, "commands": commands}


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", "give another --output") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InputError(f"{path} is there and no anatomy", "give another --output")
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def is_done(document: Mapping[str, Any], name: str, batches: tuple[int, ...]) -> bool:
    """Whether a mode needs no run: it was measured at these batch sizes, or is not run here at all. A failed one is tried again."""
    mode = document["modes"].get(name)
    if mode is None or mode["status"] not in (MEASURED, SKIPPED):
        return False
    return mode["status"] == SKIPPED or set(batches) <= {row["batch"] for row in mode["decode"]}


def save(path: Path, document: dict[str, Any]) -> None:
    """With the sentences and claims that follow from what is there; rows of one line each, to be read in a diff."""
    modes = document["modes"]
    document["modes"] = {name: modes[name] for name in TITLES if name in modes}  # in order, whatever was measured first
    document["words"], document["claims"] = sentences(document["modes"]), claims(document)
    write_atomically(path, _text(document) + "\n")


def _text(value: Any, depth: int = 0) -> str:
    """JSON with what fits into a line in one line, and each row of figures in one whatever its length."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + depth <= 180 or depth >= _ROW_DEPTH or not isinstance(value, dict | list) or not value:
        return flat
    inner, pad = " " * (depth + 1), " " * depth
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {_text(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{pad}}}"
    return "[\n" + ",\n".join(inner + _text(item, depth + 1) for item in value) + f"\n{pad}]"
