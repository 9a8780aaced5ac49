"""Packs the recorded parser tables of the releases into the one that the advisor reads.

    python tools/option_tables.py tests/data/options advisor/engine/data/options.json.gz

Reads every `<version>.json` that tools/release_parser.py --record wrote. To add a release: record it, add it to RELEASES in
advisor/engine/versions.py and run this. Shape of the result, where a run is [first, last, ...] in positions of `releases`:

    {"releases": ["0.9.0", ...],
     "spellings": {"--no-enforce-eager": [[0, 27, "--enforce-eager", "switch"]]},   every accepted spelling
     "defaults": {"--block-size": [[0, null], [5, 16]]},                             [from, value] by main spelling
     "choices": {"--kv-cache-dtype": [[0, 3, ["auto", "fp8"]]]},
     "keys": {"--compilation-config": {"level": [[0, 11]]}},
     "env": {"VLLM_USE_V1": [[0, 5]]}}
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def runs(present: Iterable[tuple[int, tuple[Any, ...]]]) -> list[list[Any]]:
    """Positions with what holds there, joined where neighbours hold the same."""
    found: list[list[Any]] = []
    for at, extra in present:
        if found and found[-1][1] == at - 1 and tuple(found[-1][2:]) == extra:
            found[-1][1] = at
        else:
            found.append([at, at, *extra])
    return found


def packed(tables: list[dict[str, Any]]) -> dict[str, Any]:
    spellings: dict[str, list[Any]] = {}
    defaults: dict[str, list[Any]] = {}
    choices: dict[str, list[Any]] = {}
    keys: dict[str, dict[str, list[Any]]] = {}
    env: dict[str, list[Any]] = {}
    for at, table in enumerate(tables):
        for name, entry in table["options"].items():
            for spelling in (name, *entry.get("other", ())):
                spellings.setdefault(spelling, []).append((at, (name, entry["kind"])))
            history = defaults.setdefault(name, [])
            if entry["kind"] != "json" and (not history or history[-1][1] != entry.get("default")):
                history.append([at, entry.get("default")])
            if entry.get("choices"):
                choices.setdefault(name, []).append((at, (entry["choices"],)))
        for place, names in table["keys"].items():
            for key in names:
                keys.setdefault(place, {}).setdefault(key, []).append((at, ()))
        for name in table["env"]:
            env.setdefault(name, []).append((at, ()))
    return {
        "releases": [table["version"] for table in tables],
        "spellings": {name: runs(found) for name, found in sorted(spellings.items())},
        "defaults": {name: found for name, found in sorted(defaults.items()) if found},
        "choices": {name: runs(found) for name, found in sorted(choices.items())},
        "keys": {place: {key: runs(found) for key, found in sorted(names.items())} for place, names in keys.items()},
        "env": {name: runs(found) for name, found in sorted(env.items())},
    }


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in source.glob("*.json")]
    tables.sort(key=lambda table: [int(part) for part in table["version"].split(".")])
    text = json.dumps(packed(tables), separators=(",", ":"), sort_keys=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    # No time in the file: the same tables give the same bytes.
    target.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"{target}: {len(tables)} releases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
