"""When a server counts as warm, how long a sample lasts, and what the plan of a study is made from."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.measure.advice import advice
from advisor.measure.length import least_requests, least_s, length_problem, prompts_for, wanted_s
from advisor.measure.plan import first_plan, known_prompts, plan_of, planned, revised
from advisor.measure.warmup import MOST_S, MOST_WAVES, Wave, judge_warm_up, wave_of, wave_prompts
from advisor.measure.workload import load_workload, preset_names
from advisor.records import ClientLoad, Invalid, SamplingPlan, Trial, Workload, from_json, to_json
from tests.study_help import sample, trial

LOAD = Workload("w", 100, 20, num_prompts=64, concurrency=16)


def waves(*tok_s, tpot_ms=10.0):
    return [Wave(16, value, tpot_ms) for value in tok_s]


# ---------------------------------------------------------------- warm-up


def test_one_wave_is_never_enough_and_two_that_agree_are():
    assert judge_warm_up([], 0) is None and judge_warm_up(waves(100), 5) is None
    ended = judge_warm_up(waves(100, 104), 5)
    assert (ended.waves, ended.prompts, ended.steady, ended.why) == (2, 32, True, "waves 1 and 2 are 4% apart")


def test_a_cold_server_gets_more_waves_until_they_agree():
    assert judge_warm_up(waves(40, 90), 5) is None
    assert judge_warm_up(waves(40, 90, 110), 8) is None
    assert judge_warm_up(waves(40, 90, 110, 112), 11).steady


def test_time_per_token_must_agree_too():
    assert judge_warm_up([Wave(16, 100, 20.0), Wave(16, 100, 10.0)], 5) is None


def test_a_wave_in_which_something_was_compiled_ends_no_warm_up():
    last = Wave(16, 100, 10.0, ("Triton kernel k",))
    assert judge_warm_up([*waves(100), last], 5) is None
    assert judge_warm_up([*waves(100), last, *waves(101)], 8).steady


@pytest.mark.parametrize(("count", "elapsed_s"), [(MOST_WAVES, 5.0), (3, MOST_S)])
def test_it_ends_unsteady_at_either_limit_and_says_so(count: int, elapsed_s: float):
    ended = judge_warm_up(waves(*(100 * 2**n for n in range(count))), elapsed_s)
    assert not ended.steady and ended.waves == count and "50% apart" in ended.why
    compiled = [*waves(*[100] * (count - 1)), Wave(16, 100, 10.0, ("a graph for shape 8",))]
    assert "a graph for shape 8 was compiled in the last wave" in judge_warm_up(compiled, elapsed_s).why


def test_a_server_that_answers_nothing_is_not_waited_for():
    ended = judge_warm_up(waves(0.0, 0.0), 1)
    assert not ended.steady and ended.why == "no request was answered"
    assert wave_of(None).requests == 0


def test_a_wave_is_the_load_once_or_a_few_requests_more():
    assert wave_prompts(load_workload("chat", concurrency=1)) == 2  # of 16 in a sample: each takes a second or more
    assert wave_prompts(load_workload("chat")) == 64
    assert wave_prompts(load_workload("tiny")) == 8
    assert wave_prompts(load_workload("chat", rate=20)) == 20
    assert wave_prompts(dataclasses.replace(LOAD, warmup_prompts=50)) == 25
    assert wave_prompts(dataclasses.replace(LOAD, num_prompts=5, concurrency=1)) == 1


# ---------------------------------------------------------------- length


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_long_enough_in_requests_by_themselves(name: str):
    assert load_workload(name).num_prompts >= least_requests(load_workload(name))


def test_chat_and_tiny_keep_their_prompts_at_the_pace_that_was_measured():
    chat, tiny = load_workload("chat"), load_workload("tiny")
    assert prompts_for(chat, 256 / 10.2) == 256  # Llama-3.1-8B on an H200
    assert prompts_for(tiny, 400 / 32) == 48  # 400 tokens a second, two processor cores


def test_seconds_and_requests_grow_with_the_load():
    assert wanted_s(load_workload("chat")) == 4.0 and wanted_s(load_workload("batch")) == 7.0
    assert wanted_s(dataclasses.replace(LOAD, concurrency=4096)) == 10.0
    assert least_requests(LOAD) == 48 and least_requests(dataclasses.replace(LOAD, concurrency=1)) == 8
    assert least_s(LOAD) == wanted_s(LOAD) / 4


def test_a_fast_server_gets_more_prompts_in_whole_waves():
    assert prompts_for(LOAD, requests_s=100) == 400  # 100/s for 3.25 s and a fifth more, rounded up to waves of 16
    assert prompts_for(LOAD, requests_s=1) == 64
    assert prompts_for(dataclasses.replace(LOAD, num_prompts=20), requests_s=1) == 48
    assert prompts_for(LOAD, requests_s=0) == 64
    assert prompts_for(LOAD, requests_s=1e9) == 64 * 64


def test_a_sample_that_is_too_short_says_what_is_least():
    ok = dataclasses.replace(sample(0, 100.0), duration_s=1.0, requests=48)
    assert length_problem(ok, LOAD) is None
    assert "0.50 s; at least 0.81 s are needed" in length_problem(dataclasses.replace(ok, duration_s=0.5), LOAD)
    few = dataclasses.replace(ok, requests=40)
    assert "40 requests are too few for this load: at least 48 are needed" in length_problem(few, LOAD)


# ---------------------------------------------------------------- plan


def watched(cpu_share: float, requests_s: float = 10.0, lag_ms: float = 0.0, processes: int = 1):
    return dataclasses.replace(
        sample(0, 100.0), requests_s=requests_s, client=ClientLoad(processes, cpu_share, {"mean": lag_ms})
    )


def test_a_calm_client_is_left_alone():
    assert first_plan(LOAD, watched(0.55), most=8) == SamplingPlan(64, 1, "")
    assert first_plan(LOAD, None, most=8) == SamplingPlan(64, 1, "")


def test_a_busy_client_is_divided_until_each_has_room():
    assert first_plan(LOAD, watched(0.97), most=8).client_processes == 3
    assert first_plan(LOAD, watched(0.97), most=2).client_processes == 2
    assert first_plan(LOAD, watched(0.97), most=1).client_processes == 1
    assert first_plan(LOAD, watched(0.5, lag_ms=2.0), most=8).client_processes == 2  # late by a fifth of a token's time
    assert first_plan(LOAD, watched(0.1, lag_ms=2.0), most=8).client_processes == 1  # not by its own work
    asked = first_plan(LOAD, watched(0.1), most=8, fixed_processes=4)
    assert asked.client_processes == 4 and asked.why == "4 client processes, as asked for"


def test_only_what_more_prompts_or_processes_can_mend_changes_the_plan():
    plan = SamplingPlan(64)
    good = watched(0.95)
    assert revised(plan, good, LOAD, most=8) == plan
    bound = dataclasses.replace(good, classes=(Invalid.CLIENT_BOUND,), problems=("x",))
    assert revised(plan, bound, LOAD, most=8).client_processes == 3
    assert revised(plan, bound, LOAD, most=1) == plan
    short = dataclasses.replace(
        watched(0.1), duration_s=0.5, requests=64, classes=(Invalid.TOO_SHORT,), problems=("x",)
    )
    assert revised(plan, short, LOAD, most=8).num_prompts == 512
    assert planned(LOAD, SamplingPlan(512)).num_prompts == 512


def test_an_older_journal_tells_its_plan_by_its_samples():
    assert plan_of([]) is None
    old = trial(0, {}, 100.0, phase="baseline")
    assert plan_of([old]) == SamplingPlan(64)
    assert plan_of([dataclasses.replace(old, plan=SamplingPlan(96, 2, "why"))]) == SamplingPlan(96, 2, "why")


def test_prompts_of_earlier_sessions_are_known():
    sent = dataclasses.replace(sample(3, 100.0), prompts="abc")
    bad = dataclasses.replace(sent, seed=4, problems=("x",))
    trials = [dataclasses.replace(trial(1, {}, 100.0), samples=(sent, bad, sample(5, 1.0)))]
    assert known_prompts(trials) == {(3, 64): "abc"}


def test_there_is_advice_for_every_class():
    for kind in Invalid:
        bad = dataclasses.replace(sample(0, 1.0), classes=(kind,), problems=("x",))
        assert advice(dataclasses.replace(trial(0, {}), samples=(bad,)))
    assert "busy" in advice(trial(0, {}, 100.0))


def test_records_of_older_journals_are_read():
    written = to_json(trial(0, {}, 100.0))
    for record in (written, *written["samples"]):
        for name in ("classes", "plan", "warm_up", "client", "asked_seed", "prompts"):
            record.pop(name, None)
    read = from_json(Trial, written)
    assert read.samples[0].classes == () and read.plan is None and read.samples[0].pair_seed == 0
