"""Which words an option takes in a version: whole numbers, numbers, or one of a list.

The table in data/option_values.json.gz is made by tools/option_values.py from the releases' own parsers.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import lru_cache
from importlib import resources
from typing import Any

from advisor.engine.reading.option_tables import release_index

Version = tuple[int, ...]

# Options that take 8k (8000) and 8K (8192) too, from the version on; --max-model-len also takes auto in later releases.
HUMAN = {
    "--max-model-len": (0, 9, 0),
    "--max-num-batched-tokens": (0, 9, 2),
    "--kv-cache-memory-bytes": (0, 10, 2),
    "--max-num-scheduled-tokens": (0, 26, 0),
}
AUTO_LENGTH_SINCE = (0, 14, 1)
_NONE = ("", "None")  # vLLM reads both as no value where an option may be without one
_FLOAT = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)


@lru_cache(maxsize=1)
def _data() -> dict[str, list[list[Any]]]:
    packed = resources.files("advisor").joinpath("engine/data/option_values.json.gz").read_bytes()
    return json.loads(gzip.decompress(packed))


def wanted(option: str, text: str, version: Version) -> str | None:
    """What the option wants instead of `text`, in words; None where the version takes it, or where no table says."""
    text = text.strip()
    if version >= HUMAN.get(option, (10**6,)):
        automatic = option == "--max-model-len" and version >= AUTO_LENGTH_SINCE and text.lower() in ("auto", "-1")
        fits = re.fullmatch(r"[+-]?\d+|\d+(\.\d+)?[kmgt]|\d+[KMGT]", text)
        return None if automatic or fits else "a whole number, or one such as 8k"
    at = release_index(version)
    run = next((run for run in _data().get(option, ()) if run[0] <= at <= run[1]), None)
    if run is None:
        return None
    kind, choices = run[2:]
    if choices is not None:
        return None if text in choices or text in _NONE else "one of " + ", ".join(choices)
    if kind == "int":
        return None if re.fullmatch(r"[+-]?\d[\d_]*", text) or text in _NONE else "a whole number"
    return None if _FLOAT.fullmatch(text) or text in _NONE else "a number"
