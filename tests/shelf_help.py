"""What tests of benchmarks/shelf.py share: the committed profile, lists of entries, the command."""

from __future__ import annotations

from pathlib import Path

from benchmarks import shelf

ROOT = Path(__file__).resolve().parents[1]
LLAMA = ROOT / "profiles" / "h200" / "Llama-3.1-8B-chat.yaml"
ENTRY = "  {name}:\n    model: tiny\n    workload: tiny\n    budget: 1m\n    minutes: {minutes}\n    why: a test\n"


def write_list(folder: Path, **minutes: float) -> str:
    entries = "".join(ENTRY.format(name=name, minutes=value) for name, value in minutes.items())
    path = folder / "list.yaml"
    path.write_text(f"schema: advisor.shelf/1\ngpu: h200\nserve_args: --load-format dummy\nentries:\n{entries}")
    return str(path)


def main(*words: str) -> int:
    return shelf.main([*words, "--verified", "verified.json"])
