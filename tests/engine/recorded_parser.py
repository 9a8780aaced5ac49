"""What a release's parser would object to in an argument list, from its recorded table: a small stand-in for argparse.

It knows option names, how many values each takes, choices, whole and other numbers, and JSON with its known keys. That it
agrees with the releases' own parsers is checked in test_spelling_releases.py.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "options"


def table(version: str) -> dict:
    return json.loads((FOLDER / f"{version}.json").read_text())


def versions() -> list[str]:
    return sorted(
        (path.stem for path in FOLDER.glob("*.json")), key=lambda text: [int(part) for part in text.split(".")]
    )


def objections(argv: list[str], recorded: dict) -> list[str]:
    """Empty when the release accepts the words that follow `vllm serve MODEL`."""
    spelled = {
        name: (main, entry) for main, entry in recorded["options"].items() for name in (main, *entry.get("other", ()))
    }
    found, position = [], 0
    while position < len(argv):
        name = argv[position]
        position += 1
        values = []
        while position < len(argv) and not _is_option(argv[position]):
            values.append(argv[position])
            position += 1
        if name not in spelled:
            found.append(f"unknown option {name}")
            continue
        main, entry = spelled[name]
        found += _values(name, values, entry) or _json(main, values, entry, recorded["keys"])
    return found


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit()


def _values(name: str, values: list[str], entry: dict) -> list[str]:
    wanted = entry.get("nargs")
    if entry["kind"] == "switch":
        return [f"{name} takes no value, found {values}"] if values else []
    if wanted == "+" and not values:
        return [f"{name} needs a value"]
    if wanted is None and len(values) != 1:
        return [f"{name} takes one value, found {values}"]
    for value in values:
        if "choices" in entry and value not in map(str, entry["choices"]):
            return [f"{name} {value} is not one of {entry['choices']}"]
        if "choices" not in entry and not _fits(value, entry.get("type")):
            return [f"{name} {value} is no {entry['type']}"]
    return []


def _fits(value: str, kind: str | None) -> bool:
    try:
        {"int": int, "float": float}.get(kind, str)(value)
    except ValueError:
        return False
    return True


def _json(option: str, values: list[str], entry: dict, keys: dict) -> list[str]:
    if entry["kind"] != "json":
        return []
    try:
        given = json.loads(values[0])
    except json.JSONDecodeError as error:
        return [f"{option} is no JSON: {error}"]
    return _keys(option, given, keys)


def _keys(place: str, given: object, keys: dict) -> list[str]:
    if place not in keys or not isinstance(given, dict):
        return []
    found = [f"{place} has no key {key}" for key in given if key not in keys[place]]
    return found + [text for key, value in given.items() for text in _keys(f"{place}.{key}", value, keys)]
