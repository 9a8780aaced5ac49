"""Tables and heat map of evidence, from the file that the command wrote."""

from __future__ import annotations

import pytest

from advisor.attention import grid
from advisor.attention import run as running
from benchmarks import tables
from tests.attention import scripted

pytest.importorskip("matplotlib")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    engines = scripted.install(monkeypatch, tmp_path)
    engines.clock, engines.start_s = scripted.Clock(), 30.0
    engines.gpu = {("TRITON_ATTN", "prefill", 1): 0.5}
    engines.steps = {("FLASHINFER", "decode", 16): 0.9}
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / "attention.md").write_text("# Evidence\n")
    wish = running.Wish(
        "/models/Small", "h200", wanted=grid.Wanted(batch_sizes=(1, 16), contexts=(512,)),
        output=folder / "attention-h200-Small.json", command="advisor attention --model /models/Small --gpu h200 --budget 15m",
    )  # fmt: skip
    running.attention(wish, lambda _: None, engines.clock)
    return folder


def test_a_section_with_conditions_tables_sentences_and_the_heat_map(folder):
    assert tables.main(["--folder", str(folder)]) == 0
    text = (folder / "attention.md").read_text()
    for part in (
        ": attention by phase, Small", "NVIDIA H200, ", "vLLM 0.26.0", "its own weights",
        "    advisor attention --model Small --gpu h200 --budget 15m", "attention-h200-Small.svg",
        "Decode, milliseconds a step, and how much longer it takes than FLASH_ATTN:3's:",
        "| 16 | 512 | 5.41 | 5.41 +0% | 4.87 -10% | 5.41 +0% | 5.41 +0% | 5.41 +0% | FLASHINFER |",
        "GPU time of a prefill step, milliseconds:", "| 1 | 512 | 2 | 2 +0% | 2 +0% | 1 -50% | 2 +0% | 2 +0% | TRITON_ATTN |",
        "Mixed, milliseconds a step, in it a prompt of 1024 tokens", "- FLASHINFER wins decode at batch 16",
        "- TURBOQUANT refused: it does not take this --kv-cache-dtype",
    ):  # fmt: skip
        assert part in text, part
    assert (folder / "attention-h200-Small.svg").read_text().startswith("<?xml")
    assert tables.update(folder, check=True) == []


def test_figures_that_change_are_found(folder):
    tables.update(folder, check=False)
    path = folder / "attention-h200-Small.json"
    path.write_text(path.read_text().replace('"step_ms": 4.868', '"step_ms": 4.2', 1))
    assert any("4.2" in line for line in tables.update(folder, check=True))
    (folder / "attention-h200-Small.svg").unlink()
    assert "attention-h200-Small.svg is not there" in tables.update(folder, check=True)
