"""JSON documents that grow while an engine is measured: one is opened, gone on with under equal conditions, and read by people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.errors import InputError

_ROW_DEPTH = 4  # document, arms, arm, rows, row
_WIDTH = 180


def opened(path: Path, head: Mapping[str, Any], schema: str, same: Sequence[str]) -> dict[str, Any]:
    """The document at `path`, or a new one with `head`. Raises InputError where one of `same` is another in the file.

    Of one that is there everything measured stays, its first date and command too; the present command is added to `commands`.
    """
    if not path.exists():
        return {"schema": schema, **head, "commands": [head["command"]]}
    found = parsed(path, schema, "give another --output")
    for name in same:
        if found.get(name) != json.loads(json.dumps(head[name])):
            raise InputError(
                f"{path} was measured with another {name}: {_short(found.get(name))} there, {_short(head[name])} now",
                "give another --output",
            )
    return {**found, "commands": list(dict.fromkeys([*found.get("commands", []), head["command"]]))}


def parsed(path: Path, schema: str, hint: str) -> dict[str, Any]:
    """What is in the file. Raises InputError where it is no document of this `schema` (`advisor.anatomy/2`)."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint) from None
    if not isinstance(found, dict) or found.get("schema") != schema:
        what = schema.partition("/")[0].rpartition(".")[2]
        raise InputError(f"{path} exists, but holds no figures of `advisor {what}` in this release's form ({schema})", hint)
    return found


def check_source(model: str | None, from_file: Path | None, others: Mapping[str, object]) -> None:
    """Raises InputError unless exactly one of --model and --from is there, and with --from none of the `others`."""
    if from_file is None and not model:
        raise InputError(
            "give --model or --from", "--model MODEL measures; --from FILE.json prints what was measured"
        )
    given = [name for name, value in {"model": model, **others}.items() if value]
    if from_file is not None and given:
        raise InputError(
            f"--from reads what was measured, and --{given[0].replace('_', '-')} is about measuring",
            "leave one of them out",
        )


def _short(value: Any) -> str:
    flat = json.dumps(value)
    return flat if len(flat) <= 160 else f"{flat[:157]}..."


def text(value: Any, depth: int = 0) -> str:
    """JSON with what fits into a line in one line, and each row of figures in one whatever its length."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + depth <= _WIDTH or depth >= _ROW_DEPTH or not isinstance(value, dict | list) or not value:
        return flat
    inner, pad = " " * (depth + 1), " " * depth
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {text(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{pad}}}"
    return "[\n" + ",\n".join(inner + text(item, depth + 1) for item in value) + f"\n{pad}]"
