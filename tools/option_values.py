"""Packs what values the releases' options take, for the advisor to check words with.

    python tools/option_values.py tests/data/options advisor/engine/data/option_values.json.gz

Reads every `<version>.json` that tools/release_parser.py --record wrote. Result: main spelling of an option -> runs
[first, last, type, choices], first and last counting releases from 0, both included; type is int, float or other, choices a
list of words or null. Options that take any word, switches and JSON are left out.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any


def packed(tables: list[dict[str, Any]]) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for at, table in enumerate(tables):
        for name, entry in table["options"].items():
            choices = entry.get("choices")
            if entry["kind"] not in ("value", "list") or (choices is None and entry["type"] not in ("int", "float")):
                continue
            what = [entry["type"], None if choices is None else [str(choice) for choice in choices]]
            runs = found.setdefault(name, [])
            if runs and runs[-1][1] == at - 1 and runs[-1][2:] == what:
                runs[-1][1] = at
            else:
                runs.append([at, at, *what])
    return found


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in source.glob("*.json")]
    tables.sort(key=lambda table: [int(part) for part in table["version"].split(".")])
    text = json.dumps(packed(tables), separators=(",", ":"), sort_keys=True)
    # No time in the file: the same tables give the same bytes.
    target.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"{target}: {len(tables)} releases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
