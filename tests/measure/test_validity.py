"""A sample with anything wrong is never a number: each rule has a case that it catches, and a sound one passes them all."""

from __future__ import annotations

import dataclasses
import math

import pytest

from advisor.measure.client_load import client_load
from advisor.measure.counters import Counters
from advisor.measure.summary import summarise
from advisor.measure.validity import allowed_prefix_hits, first_problem, judge, with_problems
from advisor.measure.workload import load_workload
from advisor.records import Invalid, Workload
from tests.conftest import ROOT
from tests.measure.raw_results import WORKLOAD, fail, made, recorded

RECORDED_TINY = dataclasses.replace(load_workload("tiny"), num_prompts=24)  # as it was when the results were recorded
SHARED = Workload("shared", 64, 32, num_prompts=16, concurrency=4, length_spread=0.3, shared_prefix_tokens=512)


def found(raw: dict, workload: Workload = WORKLOAD, counted: Counters | None = None) -> tuple[str, ...]:
    return tuple(problem.text for problem in judge(raw, summarise(raw, seed=0), workload, counted))


def only(told: tuple[str, ...]) -> str:
    """The single problem that there should be."""
    assert len(told) == 1, told
    return told[0]


def test_a_sound_sample_has_no_problem():
    counted = Counters(
        prefix_hits=0, prefix_queries=800, preemptions=0, prompt_tokens=800, generation_tokens=88, requests=8
    )
    assert found(made()) == ()
    assert found(made(), counted=counted) == ()


@pytest.mark.parametrize(("name", "workload"), [("closed_loop", RECORDED_TINY), ("shared_prefix", SHARED)])
def test_recorded_sound_results_have_no_problem(name: str, workload: Workload):
    assert found(recorded(name), workload) == ()


@pytest.mark.parametrize(("latency_s", "told"), [(1.9, 0), (1.0, 0), (0.9, 1), (None, 0)])
def test_a_server_that_had_half_of_the_load_is_told_whatever_the_client_says(latency_s: float | None, told: int):
    """Requests that wait in a client without time for them are in flight by its lists. 2 in flight, shares of one second."""
    raw, short = made(ttft_s=2.0, gap_s=0.8), made()
    assert raw["duration"] == 40 and short["duration"] == 4
    counted = Counters(latency_s=None if latency_s is None else latency_s * raw["duration"])
    problems = judge(raw, summarise(raw, seed=0), WORKLOAD, counted)
    assert [problem.kind for problem in problems] == [Invalid.LOAD_NOT_REACHED] * told
    if told:
        assert problems[0].text == "the server had 0.9 of 2 requests on average, by its own count"
    assert found(raw, dataclasses.replace(WORKLOAD, concurrency=None, rate=1.0), Counters(latency_s=0.0)) == ()
    assert found(short, counted=Counters(latency_s=0.0)) == (), "the ways between client and server are too much of four seconds"


def test_a_failed_request_is_told_with_its_last_line():
    raw = made()
    fail(raw, 2)
    assert "1 of 8 requests failed: ConnectionError: reset by peer" in found(raw)


def test_a_table_of_nothing_but_failures_is_refused():
    told = found(recorded("all_failed"), RECORDED_TINY)
    assert told == ("24 of 24 requests failed: Not Found", "no request completed")


def test_an_answer_without_a_token_is_a_failed_request():
    raw = made()
    raw["output_lens"][4] = 0
    assert any("1 of 8 requests failed: no token came back" in problem for problem in found(raw))


def test_requests_that_were_never_sent_are_missed():
    assert any("6 requests were sent instead of 8" in problem for problem in found(made(requests=6)))


def test_an_empty_result_is_refused():
    raw = {name: [] for name in ("errors", "input_lens", "output_lens", "ttfts", "itls")} | {"duration": 0.2}
    assert found(raw) == ("0 requests were sent instead of 8", "no request completed")


def test_short_answers_are_refused_although_they_make_the_server_look_fast():
    told = found(made(output_tokens=3))
    assert any("8 of 8 answers have 3 tokens or so instead of 11" in problem for problem in told)


def test_a_single_short_answer_is_enough():
    raw = made()
    raw["output_lens"][1] = 10
    assert any("1 of 8 answers" in problem for problem in found(raw))


def test_spread_lengths_are_accepted_within_their_bounds():
    spread = dataclasses.replace(WORKLOAD, output_tokens=10, length_spread=0.1)
    assert found(made(), spread) == ()
    assert "9 to 10" not in str(found(made(), dataclasses.replace(WORKLOAD, output_tokens=10)))
    narrow = dataclasses.replace(WORKLOAD, output_tokens=5, length_spread=0.1)
    assert any("instead of 4 to 6" in problem for problem in found(made(), narrow))


def test_prompts_of_another_length_are_another_workload():
    raw = made()
    raw["input_lens"] = [140] * 8
    assert only(found(raw)) == "prompts have 140 tokens on average instead of 100"


@pytest.mark.parametrize("duration", [0.0, float("nan"), float("inf")])
def test_no_duration_no_measurement(duration: float):
    assert any("duration_s is" in problem for problem in found(made() | {"duration": duration}))


def test_a_latency_that_is_no_number_is_refused():
    raw = made()
    raw["ttfts"][0] = float("nan")
    assert any("ttft_ms mean is nan" in problem for problem in found(raw))


def test_a_starved_client_is_noticed():
    told = only(found(recorded("starved"), RECORDED_TINY))
    assert told.startswith("the median TPOT is 0.0024 ms")


def test_answers_of_one_token_need_no_tpot():
    assert found(made(output_tokens=1), dataclasses.replace(WORKLOAD, output_tokens=1)) == ()


def test_a_request_longer_than_the_sample_is_implausible():
    raw = made()
    raw["duration"] /= 8
    raw.pop("output_throughput")
    raw.pop("request_throughput")
    told = found(raw)
    assert any("a request of 1.000 s cannot belong to a sample of 0.500 s" in problem for problem in told)
    assert any("16.0 requests were in flight on average, more than 2" in problem for problem in told)


def test_a_load_that_was_not_reached_is_told():
    raw = made()
    raw["duration"] *= 3
    del raw["output_throughput"], raw["request_throughput"]
    assert only(found(raw)) == "only 0.7 of 2 requests were in flight on average"
    assert found(raw, dataclasses.replace(WORKLOAD, concurrency=None, rate=1.0)) == ()


@pytest.mark.parametrize(("every_s", "told"), [(0.5, False), (0.9, False), (2.0, True)])
def test_a_rate_that_was_not_sent_is_another_load(every_s: float, told: bool):
    """The client had no time: latencies at 0.5 a second are not those at 2 a second."""
    rated = dataclasses.replace(WORKLOAD, concurrency=None, rate=2.0)
    raw = made() | {"start_times": [100 + every_s * index for index in range(8)], "duration": 7 * every_s + 1}
    del raw["output_throughput"], raw["request_throughput"]
    problems = judge(raw, summarise(raw, seed=0), rated, None)
    assert [problem.kind for problem in problems] == [Invalid.LOAD_NOT_REACHED] * told
    if told:
        assert problems[0].text == "the requests were sent in 14.0 s instead of 4.0 s, at less than half of 2 a second"


@pytest.mark.parametrize(("where", "value", "words"), [
    ("ttfts", 0.0, "1 of 8 requests have a time to the first token of zero or less"),
    ("ttfts", -0.1, "1 of 8 requests have a time to the first token of zero or less"),
    ("itls", -0.1, "1 gaps between tokens are below zero"),
])  # fmt: skip
def test_one_time_that_cannot_be_is_not_hidden_by_the_others(where: str, value: float, words: str):
    raw = made()
    raw[where][3] = [value, *raw[where][3][1:]] if where == "itls" else value
    assert words in found(raw)


def test_figures_that_vllm_sees_otherwise_are_refused():
    told = found(made() | {"output_throughput": 30.0})
    assert only(told) == "output_throughput is 22 from the raw lists and 30 by vLLM"
    assert found(made() | {"output_throughput": float("nan")}) != ()


def test_prompts_found_in_the_cache_are_not_new():
    told = found(made(), counted=Counters(prefix_hits=200, prefix_queries=800, prompt_tokens=800))
    assert only(told).startswith("25.0% of the prompt tokens came from the prefix cache")
    assert found(made(), counted=Counters(prefix_hits=10, prefix_queries=800, prompt_tokens=800)) == ()


def test_a_shared_prefix_may_be_found_and_nothing_more():
    assert allowed_prefix_hits(dataclasses.replace(SHARED, num_prompts=100)) == pytest.approx(512 / 576 + 0.02)
    assert allowed_prefix_hits(dataclasses.replace(SHARED, shared_prefix_tokens=0, num_prompts=100)) == 0.02
    raw = recorded("shared_prefix")
    total = sum(raw["input_lens"])
    seen = Counters(prefix_hits=0.83 * total, prefix_queries=total, prompt_tokens=total)
    assert found(raw, SHARED, seen) == ()
    repeated = dataclasses.replace(seen, prefix_hits=0.99 * total)
    assert "prefix cache" in only(found(raw, SHARED, repeated))


def test_one_prompt_that_equals_another_is_no_scandal_in_a_small_sample():
    assert allowed_prefix_hits(dataclasses.replace(WORKLOAD, num_prompts=24)) == pytest.approx(1 / 24)


def test_prompts_recur_by_chance_where_the_vocabulary_is_small_for_so_many():
    import numpy

    many = dataclasses.replace(WORKLOAD, num_prompts=2000)
    allowed = allowed_prefix_hits(many, 32_000)
    assert allowed == pytest.approx(0.02 + 2000 / 64_000, rel=0.02) and allowed_prefix_hits(many, 151_936) < 0.027
    drawn = numpy.random.default_rng(0).integers(0, 32_000, size=(50, 2000))  # starts of prompts
    shares = [1 - len(numpy.unique(starts)) / 2000 for starts in drawn]
    assert min(shares) > 0.02 and max(shares) < allowed  # of which most are over what is allowed where nothing is known
    counted = Counters(prefix_hits=200, prefix_queries=800, prompt_tokens=800)
    for vocabulary, problems in ((0, 1), (151_936, 1), (20, 0)):  # 8 prompts
        assert len(judge(made(), summarise(made(), 0), WORKLOAD, counted, vocabulary=vocabulary)) == problems


def test_however_small_the_vocabulary_sending_all_prompts_again_is_found():
    """Beside a shared prefix only the rest of a prompt can recur, and of many prompts not all do."""
    many = dataclasses.replace(WORKLOAD, num_prompts=2000)
    rag = dataclasses.replace(many, input_tokens=64, shared_prefix_tokens=512)
    assert allowed_prefix_hits(rag, 10_240) == pytest.approx(512 / 576 + 0.02 + 0.0917 * 64 / 576, abs=1e-3)
    assert allowed_prefix_hits(many, 1000) == pytest.approx(0.02 + 1 - (1 - math.exp(-2)) / 2, abs=1e-3)
    for unknown in (0, 1, -1):
        assert allowed_prefix_hits(many, unknown) == allowed_prefix_hits(many)


@pytest.mark.parametrize(("preemptions", "storm"), [(0, False), (3, False), (4, True), (None, False)])
def test_a_storm_of_preemptions_is_no_measurement_unless_it_is_meant(preemptions: float | None, storm: bool):
    told = found(made(), counted=Counters(preemptions=preemptions))
    assert (f"{preemptions or 0:.0f} preemptions in 8 requests" in str(told)) is storm
    meant = dataclasses.replace(WORKLOAD, preemptions="allowed")
    assert found(made(), meant, Counters(preemptions=preemptions)) == ()


def test_a_few_preemptions_among_many_requests_are_none():
    raw = made(requests=100)
    assert found(raw, dataclasses.replace(WORKLOAD, num_prompts=100), Counters(preemptions=10)) == ()


def test_a_busy_client_is_told_with_its_class():
    client = {"prompts": "p", "cpu_s": 3.9, "wall_s": 4.0, "began": 0.0, "ended": 4.0}
    raw = {**made(), "advisor_client": {**client, "loop_lags_s": [], "send_lags_s": []}}
    sample = dataclasses.replace(summarise(raw, 0), client=client_load(raw))
    (problem,) = judge(raw, sample, WORKLOAD, None, most_processes=1)
    assert problem.kind is Invalid.CLIENT_BOUND and "98% of a core" in problem.text


def test_every_problem_of_a_sample_keeps_its_class():
    raw = made(output_tokens=3)
    fail(raw, 1)
    sample = with_problems(summarise(raw, 0), judge(raw, summarise(raw, 0), WORKLOAD, Counters(requests=80)))
    assert len(sample.classes) == len(sample.problems) >= 3
    assert {Invalid.FAILED_REQUESTS, Invalid.WRONG_LENGTH, Invalid.ANOTHER_SERVER} <= set(sample.classes)
    assert first_problem(sample).startswith("failed-requests: 1 of 8 requests failed")
    assert first_problem(dataclasses.replace(sample, classes=())).startswith("1 of 8")  # an older journal


def test_the_documentation_explains_every_class():
    rows = [line for line in (ROOT / "docs" / "measuring.md").read_text().splitlines() if line.startswith("| `")]
    assert [kind.value for kind in Invalid if not any(row.startswith(f"| `{kind.value}` |") for row in rows)] == []


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (Counters(generation_tokens=89), None),
        (Counters(generation_tokens=96), "the server counts 96 generated tokens, the client 88"),
        (Counters(generation_tokens=0), "the server counts 0 generated tokens, the client 88"),
        (Counters(prompt_tokens=1600), "the server counts 1600 prompt tokens, the client 800"),
        (Counters(requests=9), "the server counts 9 finished requests, the client 8"),
        (Counters(generation_tokens=-5000), "the server counts -5000 generated tokens, the client 88"),
    ],
)
def test_the_server_must_have_seen_the_same(counted: Counters, said: str | None):
    told = found(made(), counted=counted)
    assert told == (() if said is None else (said,))
