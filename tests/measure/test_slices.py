"""Slices of a recorded raw result against figures computed here by hand."""

import dataclasses
import json
from pathlib import Path

import pytest

from advisor.measure.slices import slices_of
from advisor.measure.summary import summarise
from advisor.records import Sample, from_json, to_json

DATA = Path(__file__).parents[1] / "data" / "bench"


@pytest.fixture
def raw():
    return json.loads((DATA / "closed_loop.json").read_text())


def test_a_slice_is_the_first_requests_until_their_last_answer(raw):
    found = slices_of(raw)
    assert [item.requests for item in found] == [3, 6, 12, 18]  # of 24
    order = sorted(range(24), key=lambda i: raw["start_times"][i])[:6]
    end = max(raw["start_times"][i] + raw["latencies"][i] for i in order)
    lasted = end - min(raw["start_times"])
    assert found[1].duration_s == pytest.approx(lasted, rel=1e-3)
    assert found[1].output_tok_s == pytest.approx(sum(raw["output_lens"][i] for i in order) / lasted, rel=1e-3)
    assert found[1].ttft_ms["mean"] == pytest.approx(1000 * sum(raw["ttfts"][i] for i in order) / 6, rel=1e-3)


def test_longer_slices_come_closer_to_the_whole(raw):
    whole = summarise(raw, 0)
    off = [abs(item.output_tok_s / whole.output_tok_s - 1) for item in slices_of(raw, (1 / 8, 1 / 2, 23 / 24))]
    assert off[2] < 0.06 and slices_of(raw)[-1].duration_s < whole.duration_s
    assert slices_of(raw, (23 / 24,))[0].tpot_ms["p50"] == pytest.approx(whole.tpot_ms["p50"], rel=0.05)


def test_latencies_are_not_needed(raw):
    """vLLM 0.26.0 does not write them."""
    with_latencies = slices_of(raw)
    del raw["latencies"]
    assert slices_of(raw)[2].duration_s == pytest.approx(with_latencies[2].duration_s, rel=0.01)


@pytest.mark.parametrize("change", [{"start_times": None}, {"errors": ["x"] * 24}, {"ttfts": [1.0]}, {"itls": []}])
def test_what_cannot_be_cut_has_no_slices(raw, change):
    assert slices_of(raw | change) == ()


def test_slices_survive_the_journal(raw):
    sample = summarise(raw, 0)
    sample = dataclasses.replace(sample, slices=slices_of(raw))
    assert from_json(Sample, json.loads(json.dumps(to_json(sample)))) == sample
