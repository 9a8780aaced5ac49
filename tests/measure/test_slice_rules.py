"""How short a slice may be, and when it is of use."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.measure.length import least_requests, wanted_s
from advisor.measure.plan import first_plan, known_prompts, planned, revised
from advisor.measure.slice_rules import LATENCY_WAVES, WAVES, as_slice, objection, slice_prompts, slice_s, sliced
from advisor.measure.validity import judge_length
from advisor.measure.workload import load_workload, preset_names
from advisor.records import Invalid, SamplingPlan, Trial, Workload, from_json, to_json
from tests.study_help import sample, trial

CHAT = load_workload("chat")


def taken(seconds: float, problems=(), classes=(), taints=()):
    return dataclasses.replace(sample(0, 100.0), duration_s=seconds, problems=problems, classes=classes, taints=taints)


@pytest.mark.parametrize(("name", "rate", "parts"), [("chat", 25.0, 4), ("batch", 12.0, 3), ("code", 20.0, 6), ("rag", 8.0, 6)])
def test_a_slice_of_a_preset_is_one_wave_where_that_lasts_a_second(name, rate, parts):
    workload = load_workload(name)
    prompts = slice_prompts(workload, workload.num_prompts, rate)
    assert prompts % workload.concurrency == 0 and prompts / rate >= slice_s(workload)
    assert prompts == workload.concurrency or name == "code"
    assert workload.num_prompts / prompts == parts


@pytest.mark.parametrize("name", preset_names())
def test_no_slice_is_longer_than_half_of_a_sample_or_shorter_than_a_wave(name):
    workload = load_workload(name)
    for waves in (WAVES, LATENCY_WAVES):
        for rate in (0.0, 0.1, 3.0, 50.0, 1e6, float("inf")):
            prompts = slice_prompts(workload, workload.num_prompts, rate, waves)
            assert prompts == 0 or max(8, waves * workload.concurrency) <= prompts <= workload.num_prompts / 2


def test_a_quick_server_gets_more_waves_until_the_slice_lasts():
    assert slice_prompts(CHAT, 4096, 100.0) == 192  # 1.33 s are wanted, 1.6 s planned, in whole waves
    assert slice_prompts(CHAT, 256, 100.0) == 0  # which would be most of a sample


def test_latencies_need_the_waves_of_a_whole_sample():
    assert slice_prompts(CHAT, 256, 25.0, LATENCY_WAVES) == 0
    assert slice_prompts(CHAT, 512, 25.0, LATENCY_WAVES) == least_requests(CHAT) == 192


def test_with_a_rate_a_slice_is_a_stretch_of_arrivals():
    load = Workload("w", 100, 20, num_prompts=100, rate=10.0)
    assert slice_prompts(load, 100, 10.0) == 16
    assert slice_prompts(dataclasses.replace(load, num_prompts=1000, rate=100.0), 1000, 100.0) == 120  # a second and a fifth
    assert slice_prompts(load, 20, 10.0) == 0


def test_a_slice_may_be_shorter_than_a_sample_but_not_than_a_quarter_of_its_own_seconds():
    short = taken(slice_s(CHAT) / 2)
    now = sliced(CHAT, 64)
    judged = dataclasses.replace(short, requests=64)
    whole = judge_length(judged, now)
    assert [problem.kind for problem in whole] == [Invalid.TOO_SHORT]
    by_client = dataclasses.replace(judged, problems=(whole[0].text,), classes=(whole[0].kind,))
    assert as_slice(by_client, now) == judged and objection(as_slice(by_client, now)) is None
    tiny = as_slice(dataclasses.replace(by_client, duration_s=slice_s(CHAT) / 5), now)
    assert objection(tiny).startswith("too-short: the slice lasted 0.27 s; at least 0.33 s are needed")
    assert slice_s(CHAT) == wanted_s(CHAT) / 3


def test_other_problems_of_a_slice_stay():
    both = taken(0.01, ("too few", "3 of 8 requests failed"), (Invalid.TOO_SHORT, Invalid.FAILED_REQUESTS))
    assert as_slice(both, CHAT).problems == ("3 of 8 requests failed",)
    assert objection(as_slice(both, CHAT)) == "failed-requests: 3 of 8 requests failed"
    assert objection(taken(3.0, taints=("the GPU was too hot",))) == "the GPU was too hot"


def test_the_plan_keeps_the_slice_and_old_plans_have_none():
    wave = dataclasses.replace(sample(0, 100.0), requests_s=25.0)
    plan = first_plan(CHAT, wave, most=8, slice_waves=WAVES)
    assert (plan.num_prompts, plan.slice_prompts) == (256, 64)
    assert first_plan(CHAT, wave, most=8).slice_prompts == 0
    better = revised(plan, taken(0.1, ("short",), (Invalid.TOO_SHORT,)), CHAT, most=8)
    assert better.num_prompts > plan.num_prompts and better.slice_prompts == 64
    assert planned(CHAT, plan).num_prompts == 256
    assert from_json(SamplingPlan, {"num_prompts": 256, "client_processes": 1, "why": ""}).slice_prompts == 0


def test_the_prompts_of_slices_are_remembered_too():
    made = dataclasses.replace(trial(0, {}, phase="baseline"), slices=(dataclasses.replace(sample(500_000, 1.0), prompts="d"),))
    assert known_prompts([made]) == {(500_000, 64): "d"}


def test_a_journal_line_without_slices_is_read():
    old = to_json(trial(1, {"--a": 1}, 100.0))
    del old["slices"]
    read = from_json(Trial, old)
    assert read.slices == () and read.dropped is None and "dropped" not in old
