"""Whole tunes in which nothing can be gained: `python -m benchmarks.null_tunes --output FILE -- [options of advisor tune]`.

The only candidate (null_space.yaml) changes no speed, so any `improved` is a false one. Each tune is a process of its own with a
study of its own; the file grows by one tune at a time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from advisor.journal import now

SPACE = Path(__file__).with_name("null_space.yaml")


def one(number: int, options: list[str], folder: Path) -> dict[str, Any]:
    """Run a tune to its end and read its profile."""
    profile = folder / f"null-{number}.yaml"
    words = [
        "--space",
        str(SPACE),
        "--study",
        f"null-{number}",
        "--output",
        str(profile),
        "--runs",
        str(folder),
        "--plain",
    ]
    begun = time.monotonic()
    command = [sys.executable, "-m", "advisor", "tune", *options, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"seconds": round(time.monotonic() - begun, 1), "exit_code": done.returncode}
    if done.returncode:
        return {**found, "error": done.stderr.strip().splitlines()[-3:]}
    written = yaml.safe_load(profile.read_text())
    return {**found, "decision": written["decision"], "launches": written["study"]["launches"]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.null_tunes", description=__doc__.splitlines()[0])
    parser.add_argument("--tunes", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True, help="JSON file")
    parser.add_argument("--runs", type=Path, default=Path("runs/null"))
    parser.add_argument("options", nargs=argparse.REMAINDER, help="-- and options of advisor tune")
    given = parser.parse_args()
    options = [word for word in given.options if word != "--"]
    result: dict[str, Any] = {"date": now(), "options": options, "tunes": []}
    for number in range(given.tunes):
        result["tunes"].append(one(number, options, given.runs.resolve()))
        given.output.write_text(json.dumps(result, indent=1) + "\n")
        last = result["tunes"][-1]
        outcome = last["decision"]["outcome"] if "decision" in last else last["error"]
        print(f"{number}: {outcome} in {last['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
