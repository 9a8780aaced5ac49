"""Samples are computed from the per-request lists and agree with what vLLM says about itself."""

from __future__ import annotations

import pytest

from advisor.measure.summary import distribution_ms, empty_sample, requests_of, summarise
from tests.measure.raw_results import fail, made, recorded


def test_every_figure_of_a_made_result():
    sample = summarise(made(), seed=5)
    assert (sample.seed, sample.requests, sample.failed) == (5, 8, 0)
    assert (sample.input_tokens, sample.output_tokens) == (800, 88)
    assert sample.duration_s == pytest.approx(4.0)
    assert sample.output_tok_s == pytest.approx(22.0)
    assert sample.input_tok_s == pytest.approx(200.0)
    assert sample.requests_s == pytest.approx(2.0)
    for kind, milliseconds in {"ttft_ms": 200, "tpot_ms": 80, "itl_ms": 80, "e2el_ms": 1000}.items():
        values = getattr(sample, kind)
        assert set(values) == {"mean", "p50", "p90", "p99"}
        assert list(values.values()) == pytest.approx([milliseconds] * 4)


def test_percentiles_interpolate_as_numpy_does():
    assert distribution_ms([0.001, 0.002, 0.003, 0.004]) == pytest.approx(
        {"mean": 2.5, "p50": 2.5, "p90": 3.7, "p99": 3.97}
    )


def test_a_failed_request_adds_nothing_to_any_figure():
    raw = made()
    fail(raw, 3)
    sample = summarise(raw, seed=0)
    assert (sample.requests, sample.failed, sample.output_tokens, sample.input_tokens) == (7, 1, 77, 700)
    assert sample.ttft_ms["mean"] == pytest.approx(200)


def test_tokens_sent_together_count_for_tpot_but_not_for_gaps():
    raw = made()
    raw["itls"][0] = [0.4, 0.4]  # 11 tokens in three messages
    requests = requests_of(raw)
    assert requests.tpot_s[0] == pytest.approx(0.08)
    assert len(requests.gaps_s) == 7 * 10 + 2


def test_one_token_answers_have_no_tpot():
    raw = made(output_tokens=1)
    assert requests_of(raw).tpot_s == ()
    assert summarise(raw, seed=0).tpot_ms["p50"] == 0


def test_latencies_of_newer_clients_are_used():
    raw = made()
    raw["latencies"] = [2.0] * 8
    assert summarise(raw, seed=0).e2el_ms["mean"] == pytest.approx(2000)


@pytest.mark.parametrize("name", ["errors", "input_lens", "output_lens", "ttfts", "itls"])
def test_a_result_without_its_lists_is_refused(name: str):
    raw = made()
    del raw[name]
    with pytest.raises(ValueError, match=name):
        summarise(raw, seed=0)


def test_lists_of_different_length_are_refused():
    raw = made()
    raw["ttfts"].pop()
    with pytest.raises(ValueError, match="differ in length"):
        summarise(raw, seed=0)


def test_a_sample_that_was_not_taken_has_only_zeros():
    sample = empty_sample(3)
    assert (sample.output_tok_s, sample.requests, sample.ttft_ms["p99"]) == (0, 0, 0)


@pytest.mark.parametrize("name", ["closed_loop", "shared_prefix"])
def test_recorded_results_agree_with_vllm(name: str):
    raw = recorded(name)
    sample = summarise(raw, seed=0)
    assert sample.output_tok_s == pytest.approx(raw["output_throughput"])
    assert sample.requests_s == pytest.approx(raw["request_throughput"])
    assert (sample.input_tokens, sample.output_tokens) == (raw["total_input_tokens"], raw["total_output_tokens"])
    for metric in ("ttft", "tpot", "itl", "e2el"):
        ours = getattr(sample, f"{metric}_ms")
        for key in ("mean", "p50", "p90", "p99"):
            assert ours[key] == pytest.approx(raw[f"{key}_{metric}_ms"], rel=1e-3)


def test_a_result_without_latencies_gives_the_same_ones():
    """vLLM 0.26.0 leaves no `latencies`: the first token and the gaps after it add up to them."""
    raw = recorded("closed_loop")
    newer = summarise(raw, seed=0)
    raw.pop("latencies")
    older = summarise(raw, seed=0)
    assert older.e2el_ms == pytest.approx(newer.e2el_ms, rel=1e-3)
    assert older.tpot_ms == pytest.approx(newer.tpot_ms, rel=1e-3)
