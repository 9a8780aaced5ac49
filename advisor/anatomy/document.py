"""The JSON document of an anatomy: what is measured under which conditions, going on with one that is there, reading it again."""

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
    if not path.exists():
        return {"schema": SCHEMA, **head, "commands": [head["command"]], "modes": {}}
    found = _parsed(path, "give another --output")
    for name in _SAME:
        if found.get(name) != json.loads(json.dumps(head[name])):
            raise InputError(
                f"{path} was measured with another {name}: {_short(found.get(name))} there, {_short(head[name])} now",
                "give another --output",
            )
    commands = list(dict.fromkeys([*found.get("commands", []), head["command"]]))
    return {**found, "commands": commands}


def read(path: Path) -> dict[str, Any]:
    """A whole document, with the sentences and claims of this release. Raises InputError where `path` holds none."""
    if not path.exists():
        raise InputError(f"{path} is not there", "`advisor anatomy --model MODEL` writes such a file")
    found = _parsed(path, "name a file that `advisor anatomy` wrote")
    missing = [name for name in ("model", "gpu", "versions", "date", "context", "modes") if name not in found]
    if missing:
        raise InputError(f"{path} is no whole anatomy: it has no {', '.join(missing)}")
    return with_words(found)


def with_words(document: dict[str, Any]) -> dict[str, Any]:
    """With the sentences and claims that follow from what is there, and the modes in order, whatever was measured first."""
    document["modes"] = {name: document["modes"][name] for name in TITLES if name in document["modes"]}
    document["words"], document["claims"] = sentences(document["modes"]), claims(document)
    return document


def _parsed(path: Path, hint: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint) from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InputError(f"{path} is there and no anatomy", hint)
    return found


def _short(value: Any) -> str:
    flat = json.dumps(value)
    return flat if len(flat) <= 160 else f"{flat[:157]}..."


def is_done(document: Mapping[str, Any], name: str, batches: tuple[int, ...]) -> bool:
    """Whether a mode needs no run: it was measured at these batch sizes, or is not run here at all. A failed one is tried again."""
    mode = document["modes"].get(name)
    if mode is None or mode["status"] not in (MEASURED, SKIPPED):
        return False
    return mode["status"] == SKIPPED or set(batches) <= {row["batch"] for row in mode["decode"]}


def save(path: Path, document: dict[str, Any]) -> None:
    write_atomically(path, text(with_words(document)) + "\n")


def text(value: Any, depth: int = 0) -> str:
    """JSON with what fits into a line in one line, and each row of figures in one whatever its length."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + depth <= 180 or depth >= _ROW_DEPTH or not isinstance(value, dict | list) or not value:
        return flat
    inner, pad = " " * (depth + 1), " " * depth
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {text(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{pad}}}"
    return "[\n" + ",\n".join(inner + text(item, depth + 1) for item in value) + f"\n{pad}]"
