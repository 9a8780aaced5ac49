"""A disk that is full behind standard output: one line and an exit code, whatever was to be printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
PROFILE = Path(__file__).parents[1] / "profiles" / "h200" / "Llama-3.1-8B-chat.yaml"
COMMANDS = [
    ["export", str(PROFILE)],
    ["migrate", str(PROFILE), "--to-version", "0.33.0"],
    ["explain", "--vllm-version", "0.26.0", "--gpu", "H100", "--", "vllm", "serve", "m"],
    ["--version"],
    ["--help"],
    ["tune", "--help"],
]


def advisor(words, stdout):
    return subprocess.run(
        [sys.executable, "-m", "advisor", *words], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_line(words):
    with FULL.open("w") as full:
        done = advisor(words, full)
    assert done.returncode == 3
    assert done.stderr == "advisor: standard output cannot be written: No space left on device\n"


def test_a_reader_that_leaves_is_not_told_of():
    words = [sys.executable, "-m", "advisor", *COMMANDS[0]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as early:
        early.stdout.close()
        said = early.stderr.read()
    assert (said, early.returncode) == ("", 1)
