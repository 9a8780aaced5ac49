"""Lines for a terminal: broken at blanks, with nothing lost, and what is for copying left whole."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.report.wrapping import wrapped, wrapped_findings

NOTE = "note: " + " ".join(f"word{index}" for index in range(40)) + " " + "x" * 90 + " end"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("line", [NOTE, f"# {NOTE}", f"    {NOTE}", f"  name of it   {NOTE}", f"coverage: {NOTE}"])
def test_nothing_is_lost_and_only_long_words_stand_out(line, width):
    found = wrapped([line], width)
    assert " ".join(" ".join(found).replace("#", "").split()) == " ".join(line.replace("#", "").split())
    assert all(len(piece) <= width or len(piece.split()) == 1 or piece.startswith("# ") for piece in found)
    assert all(piece.startswith("#") for piece in found) == line.startswith("#")
    if not line.startswith("#"):
        deep = len(line) - len(line.lstrip())
        assert all(len(piece) - len(piece.lstrip()) > deep for piece in found[1:])


def test_without_a_width_and_on_tiny_terminals_nothing_is_broken():
    assert wrapped([NOTE, ""], None) == wrapped([NOTE, ""], 20) == [NOTE, ""]


def test_a_value_goes_on_below_the_value():
    assert wrapped(["  name   " + "word " * 20], 40)[1].startswith("         word")


def test_a_fix_to_copy_stays_whole():
    fix = "    fix: --cudagraph-capture-sizes " + " ".join(map(str, range(100)))
    words = "    fix: " + "words " * 30
    found = wrapped_findings([fix, "    fix: NAME=value " + "x " * 50, words], 80)
    assert found[0] == fix and found[1].startswith("    fix: NAME") and len(found[1]) > 80
    assert all(len(line) <= 80 for line in found[2:])


def on_a_terminal(words: list[str], columns: int) -> list[str]:
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-m", "advisor", *words], stdout=theirs, env=env) as process:
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 65536):
                text += piece
        except OSError:  # the end of a terminal, on Linux
            pass
        os.close(ours)
    assert process.returncode == 0
    return text.decode().replace("\r", "").splitlines()


def test_commands_on_a_terminal(tmp_path):
    script = tmp_path / "serve.sh"
    script.write_text(f"vllm serve m --port $P --served-model-name {'n' * 80} -cc.cudagraph_mode=FULL --seed 1\n")
    explained = on_a_terminal(["explain", "--vllm-version", "0.26.0", str(script)], 60)
    assert max(len(line) for line in explained if not line.startswith("    fix: ")) <= 60 < max(map(len, explained))
    migrated = on_a_terminal(["migrate", str(script), "--from-version", "0.26.0", "--to-version", "0.27.1"], 60)
    comments = [line for line in migrated if line.startswith("#")]
    assert max(map(len, comments)) <= 60
    assert f"  --served-model-name {'n' * 80} \\" in migrated
