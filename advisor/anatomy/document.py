"""The JSON document of an anatomy: what is measured under which conditions, going on with one that is there, reading it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.anatomy.claims import claims
from advisor.anatomy.modes import TITLES
from advisor.anatomy.words import sentences
from advisor.errors import InputError
from advisor.journal import write_atomically
from advisor.stepping import files

SCHEMA = "advisor.anatomy/2"
MEASURED, PARTLY, FAILED, SKIPPED = "measured", "partly", "failed", "skipped"
# What must be equal for the modes of one document to be comparable.
_SAME = ("gpu", "versions", "model", "serve_args", "env", "context", "steps")


def opened(path: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """The document at `path`, or a new one with `head`. Raises InputError where other conditions are in the file."""
    return {"modes": {}} | files.opened(path, head, SCHEMA, _SAME)


def read(path: Path) -> dict[str, Any]:
    """A whole document, with the sentences and claims of this release. Raises InputError where `path` holds none."""
    if not path.exists():
        raise InputError(f"{path} is not there", "`advisor anatomy --model MODEL` writes such a file")
    found = files.parsed(path, SCHEMA, "name a file that `advisor anatomy` wrote")
    missing = [name for name in ("model", "gpu", "versions", "date", "context", "modes") if name not in found]
    if missing:
        raise InputError(f"{path} is not complete: it has no {', '.join(missing)}")
    return with_words(found)


def with_words(document: dict[str, Any]) -> dict[str, Any]:
    """With the sentences and claims that follow from what is there, and the modes in order, whatever was measured first."""
    document["modes"] = {name: document["modes"][name] for name in TITLES if name in document["modes"]}
    document["words"], document["claims"] = sentences(document["modes"]), claims(document)
    return document


def is_done(document: Mapping[str, Any], name: str, batches: tuple[int, ...]) -> bool:
    """Whether a mode needs no run: it was measured at these batch sizes, or is not run here at all. A failed one is tried again."""
    mode = document["modes"].get(name)
    if mode is None or mode["status"] not in (MEASURED, SKIPPED):
        return False
    return mode["status"] == SKIPPED or set(batches) <= {row["batch"] for row in mode["decode"]}


def save(path: Path, document: dict[str, Any]) -> None:
    write_atomically(path, files.text(with_words(document)) + "\n")
