"""A stand-in for `advisor`, and a folder to run benchmarks/shelf.py in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import timed_runs
from tests.shelf_help import LLAMA

# What `advisor tune` and `advisor verify` leave, in moments; the entry's name decides how it ends.
STAND_IN = """
import json, os, re, shutil, signal, sys, time
from pathlib import Path
words = sys.argv[1:]
def value(option): return words[words.index(option) + 1]
output = Path(value("--output"))
name = output.stem
if words[0] == "verify":
    name = Path(words[1]).stem
    if "crash" in name:
        raise RuntimeError("boom")
    measured_at = re.search("created_at: '?([^'\\n]+)", Path(words[1]).read_text())[1]
    record = {"profile": f"{name}.yaml", "measured_at": measured_at, "verified_at": os.environ["TODAY"],
              "result": "holds", "verdict": {"here": None},
              "figures": [{"ratio": {"value": 1.01, "low": 1.0, "high": 1.02}}]}
    output.write_text(json.dumps(record))
    print("holds (3 launches in 3m00s)")
    sys.exit(5 if "unclear" in name else 0)
study = Path(value("--runs")) / value("--study")
study.mkdir(parents=True, exist_ok=True)
(study / "study.json").write_text("{}")
(study / "trials.jsonl").touch()
if "broken" in name:
    print("advisor: vLLM refuses the baseline", file=sys.stderr)
    print("  mend it", file=sys.stderr)
    sys.exit(4)
if "other" in name and not study.name.endswith("-2"):
    print(f"advisor: study {study.name!r} in {study} was measured with driver 1, now it is 2", file=sys.stderr)
    sys.exit(2)
if "slow" in name:
    def end(*_):
        (study / "interrupted").touch()
        print("advisor: stopped during trial 3; the server has ended", file=sys.stderr)
        sys.exit(130)
    signal.signal(signal.SIGTERM, end)
    begun = (study / "begun").exists()
    (study / "begun").touch()
    if not begun:
        time.sleep(30)
output.parent.mkdir(parents=True, exist_ok=True)
shutil.copy(os.environ["PROFILE"], output)
print("profile: " + str(output))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a model that is there already and a stand-in for the advisor."""
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(timed_runs, "ADVISOR", (sys.executable, str(script)))
    monkeypatch.setenv("PROFILE", str(LLAMA))
    monkeypatch.setenv("TODAY", "2026-12-01T10:00:00+00:00")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "models" / "tiny" / "config.json").write_text("{}")
    (tmp_path / "models" / "Llama-3.1-8B").mkdir()
    (tmp_path / "models" / "Llama-3.1-8B" / "config.json").write_text("{}")
    return tmp_path
