"""What is named to cover all decode batches covers them, for every release, batch and number of draft tokens."""

from __future__ import annotations

import shlex

import pytest

from advisor.engine.explain import Gpu, explain
from advisor.engine.reading.command_line import read_command
from advisor.engine.versions import RELEASES, version_text

SINCE = (0, 11, 0)  # before, decode batches have no FULL graphs by default
COMMANDS = [
    f"vllm serve M --max-num-seqs {seqs} {more}".strip()
    for seqs in (3, 12, 20, 100, 300, 600, 1000)
    for more in ("", "--speculative-config '{\"method\": \"eagle\", \"model\": \"e\", \"num_speculative_tokens\": 3}'")
]


def answer(text, version):
    return explain(read_command(shlex.split(text), version), version, Gpu("H200", (9, 0), 140.4))


@pytest.mark.parametrize("version", [release for release in RELEASES if release >= SINCE], ids=version_text)
def test_the_fix_covers_and_is_accepted(version):
    tried = 0
    for text in COMMANDS:
        told = [f for f in answer(text, version)["findings"] if f["code"] == "operating-point-not-covered"]
        words = told[0]["fix"].split(", or")[0] if told else ""
        if "graph" not in words:
            continue
        tried += 1
        found = answer(f"{text} {words}", version)
        assert found["coverage"]["uncovered_decode_batches"] == [], (text, words)
        assert not [f for f in found["findings"] if f["severity"] == "error" or f["code"] == "capture-maximum-truncated"], words
    assert tried >= 4
