"""The runner's flow with the real client code, against the fake engine and a fake load generator: what counts, what is repeated."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from advisor.measure import client_load, length, warmup
from advisor.measure.client import BenchClient
from advisor.measure.plan import plan_of
from advisor.measure.summary import empty_sample
from advisor.records import (
    Candidate,
    ClientLoad,
    Invalid,
    Objective,
    Outcome,
    SamplingPlan,
    Workload,
    from_json,
    to_json,
)
from advisor.runner import real, sampling, window
from advisor.runner.base import Earlier, Job
from advisor.runner.real import RealRunner
from advisor.search.scores import score
from tests.fakes.fake_bench import FakeBench
from tests.runner.fakes import FACTS, SITE

WORKLOAD = Workload("fake", input_tokens=32, output_tokens=8, num_prompts=16, concurrency=4)
# 4 in flight take some 0.1 s a wave: seconds are scaled down, so that a plan is made and kept as on a real server.
SPEED = "400"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(length, "WANTED_S", 0.1)
    monkeypatch.setattr(length, "SECONDS_A_REQUEST_IN_FLIGHT", 0.0)
    monkeypatch.setattr(warmup, "CLOSE", 0.5)  # a wave of eight requests on a busy test machine
    monkeypatch.setattr(window, "POLL_S", 0.05)
    monkeypatch.setattr(FakeBench, "made", [])
    monkeypatch.setattr(real, "probe", lambda *_, **__: None)  # the fixed prompts have tests of their own


@pytest.fixture
def runner(tmp_path):
    """Makes a runner over the fake engine; keywords change the workload or go to the runner."""
    with contextlib.ExitStack() as stack:

        def make(workload=WORKLOAD, **more):
            client = stack.enter_context(BenchClient("python", "m", root=tmp_path, process=FakeBench))
            env = {"PYTHONPATH": str(SITE), "FAKE_SPEED": SPEED}
            more.setdefault("judge_machine", lambda *_: ())  # this machine is busy with tests
            return RealRunner(FACTS, workload, (), env, tmp_path, client, **more)

        yield make


def baseline(runner, number=0, seeds=(0, 1)):
    return runner.run(Job(number, "baseline", Candidate(), seeds))


def faulty(runner, fault, seeds=(0,)):
    return runner.run(Job(1, "search", Candidate({"FAKE_FAULT": fault}), seeds))


def test_a_sound_launch_records_how_it_was_measured(runner):
    done = baseline(runner())
    assert done.ok, done.reason
    assert done.warm_up.waves >= 2 and done.warm_up.steady and done.warm_up.prompts == 4 * done.warm_up.waves
    assert done.plan.num_prompts == done.samples[0].requests == done.samples[1].requests
    assert done.samples[0].client.processes == 1 and done.samples[0].prompts != done.samples[1].prompts
    assert from_json(type(done), to_json(done)) == done


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("fail_every_n:7", Invalid.FAILED_REQUESTS),
        ("one_token", Invalid.WRONG_LENGTH),
        ("preempts", Invalid.PREEMPTIONS),
        ("all_cached", Invalid.CACHED_PROMPTS),
        ("counts_double", Invalid.ANOTHER_SERVER),
        ("jit_again:3", Invalid.JIT_COMPILED),
    ],
)
def test_each_fault_has_its_class_and_is_never_a_number(runner, fault, kind):
    made = runner()
    assert baseline(made).ok
    done = faulty(made, fault)
    assert done.outcome is Outcome.INVALID_MEASUREMENT
    assert kind in done.samples[0].classes and len(done.samples[0].classes) == len(done.samples[0].problems)
    assert done.reason.startswith(f"{done.samples[0].classes[0].value}: ")
    assert score(done, Objective()) is None


def test_preemptions_may_be_what_a_workload_is_for(runner):
    made = runner(dataclasses.replace(WORKLOAD, preemptions="allowed"))
    assert baseline(made).ok
    done = faulty(made, "preempts")
    assert done.ok and done.samples[0].preemptions == done.samples[0].requests


def test_a_compilation_in_the_window_is_warmed_up_and_measured_again(runner):
    made = runner()
    first = baseline(made)
    # The start asks once; then come the waves; the kernel is compiled in the middle of the first sample.
    done = faulty(made, f"jit_at_n:{1 + 2 * 4 + first.plan.num_prompts // 2}", seeds=(0, 1))
    assert done.ok, done.reason
    compiled = [note for note in done.notes if "jit-compiled: Triton kernel _fused_kernel_" in note]
    repeated = [sample for sample in done.samples if sample.asked_seed is not None]
    if done.warm_up.waves == 2:  # else the compilation fell into the warm-up, which the noise of this machine prolonged
        assert len(compiled) == 1 and "was not valid" in compiled[0]
        assert [(sample.seed % 1_000_000, sample.pair_seed) for sample in repeated] == [(0, 0)]
    assert [sample.pair_seed for sample in done.samples] == [0, 1]


def test_a_compilation_in_the_warm_up_prolongs_it(runner):
    done = faulty(runner(), "jit_at_n:8")
    assert done.ok and done.warm_up.waves >= 3


@pytest.fixture
def no_repeats(monkeypatch):
    """Prompts belong to a seed whether the sample is valid or not; a repeat, which a busy machine may need, has another seed."""
    monkeypatch.setattr(sampling, "worth_repeating", lambda *_: False)


def test_all_candidates_get_the_same_prompts_for_a_seed_and_new_ones_for_each_other_seed(runner, no_repeats):
    made = runner(earlier=Earlier(SamplingPlan(16)))
    samples = [sample for number in range(3) for sample in baseline(made, number).samples]
    assert [sample.seed for sample in samples] == [0, 1] * 3
    by_seed = {seed: {sample.prompts for sample in samples if sample.seed == seed} for seed in (0, 1)}
    assert [len(found) for found in by_seed.values()] == [1, 1] and by_seed[0] != by_seed[1]


def test_a_repeated_sample_has_a_seed_and_prompts_of_its_own(runner, monkeypatch):
    monkeypatch.setattr(sampling, "worth_repeating", lambda _, repeats: repeats < 1)
    monkeypatch.setattr(sampling, "_why", lambda _: "the test wants it so")
    made = runner(earlier=Earlier(SamplingPlan(16)))
    samples = [sample for number in range(2) for sample in baseline(made, number).samples]
    assert [(sample.pair_seed, sample.seed % 1_000_000) for sample in samples] == [(0, 0), (1, 1)] * 2
    assert all(sample.seed >= sampling.REPEAT_SEEDS_FROM for sample in samples)
    assert [sample.prompts for sample in samples[:2]] == [sample.prompts for sample in samples[2:]]


def test_other_prompts_for_a_known_seed_are_no_measurement(runner):
    made = runner()
    first = baseline(made)
    made._digests[(0, first.plan.num_prompts)] = "0" * 16
    done = baseline(made, 1)
    assert done.outcome is Outcome.INVALID_MEASUREMENT and done.reason.startswith(
        "other-prompts: the prompts of seed 0"
    )


def test_prompts_of_an_earlier_session_are_held_against_this_one(runner):
    first = baseline(runner())
    changed = {(0, first.plan.num_prompts): "0" * 16}
    done = baseline(runner(earlier=Earlier(first.plan, prompts=changed)), 1)
    assert done.reason.startswith("other-prompts: ")


def test_a_baseline_that_is_too_quick_gets_more_prompts_and_everybody_the_same(runner, monkeypatch):
    monkeypatch.setattr(length, "WANTED_S", 0.8)
    made = runner()
    first = baseline(made)
    assert first.ok and first.plan.num_prompts > 16 and first.plan.num_prompts % 4 == 0
    assert "prompts instead of 16" in first.plan.why
    other = made.run(Job(1, "search", Candidate({"FAKE_X": "1"}), (0,)))
    assert other.plan == first.plan and other.samples[0].requests == first.plan.num_prompts
    assert plan_of([first, other]) == first.plan


def test_a_candidate_that_is_over_too_soon_is_told_so(runner, monkeypatch):
    made = runner()
    assert baseline(made).ok
    monkeypatch.setattr(length, "WANTED_S", 100.0)
    done = faulty(made, "")
    assert done.reason.startswith("too-short: the sample lasted") and "--num-prompts" in done.reason
    assert len(done.notes) == 0  # another try would be as short


def test_a_busy_client_is_divided_and_the_division_stays(runner, monkeypatch, no_repeats):
    monkeypatch.setattr(client_load, "MOST_PROCESSES", 3)
    monkeypatch.setattr(sampling, "usable_cores", lambda: 32)
    monkeypatch.setattr(FakeBench, "cpu_share", 0.75)
    made = runner()
    first = baseline(made)
    assert first.plan.client_processes == 2 and "one would set the pace" in first.plan.why
    assert [sample.client.processes for sample in first.samples] == [2, 2]
    assert first.samples[0].requests == first.plan.num_prompts
    other = made.run(Job(1, "search", Candidate({"FAKE_X": "1"}), (0, 1)))
    assert other.plan == first.plan and [sample.client.processes for sample in other.samples] == [2, 2]
    # A plan that needed another look has measured seed 0 again, with prompts of its own: seed 1 is what both launches have.
    assert first.samples[1].seed == 1 and [sample.seed for sample in other.samples] == [0, 1]
    assert other.samples[1].prompts == first.samples[1].prompts


def test_a_client_without_room_is_a_class_and_not_a_number(runner, monkeypatch):
    monkeypatch.setattr(sampling, "usable_cores", lambda: 2)
    monkeypatch.setattr(FakeBench, "cpu_share", 0.97)
    done = baseline(runner())
    assert done.outcome is Outcome.INVALID_MEASUREMENT
    assert done.reason.startswith("client-bound: the client used 97% of a core with 1 client process")
    assert len(FakeBench.made) == 1


@pytest.mark.parametrize(
    ("cpu_share", "classes", "again"),
    [
        (0.03, [Invalid.CLIENT_BOUND], True),  # recorded: a median TPOT of nothing while another server had both cores
        (0.31, [Invalid.CLIENT_BOUND], False),
        (0.03, [Invalid.TOO_SHORT], False),
        (0.03, [Invalid.CLIENT_BOUND, Invalid.TOO_SHORT], False),
    ],
)
def test_a_client_that_the_machine_starved_gets_another_try(cpu_share, classes, again):
    seen = dataclasses.replace(empty_sample(0), client=ClientLoad(1, cpu_share))
    sample = sampling.with_problems(seen, [sampling.Problem(kind, "said") for kind in classes])
    assert [sampling.worth_repeating(sample, repeats) for repeats in range(2)] == [again, False]
    unknown = dataclasses.replace(sample, client=None)
    assert not sampling.worth_repeating(unknown, 0)


def test_an_earlier_sessions_plan_is_kept(runner):
    first = baseline(runner())
    plan = dataclasses.replace(first.plan, num_prompts=40, client_processes=2)
    done = runner(earlier=Earlier(plan)).run(Job(1, "search", Candidate(), (5,)))
    assert done.plan == plan and (done.samples[0].requests, done.samples[0].client.processes) == (40, 2)


def test_a_person_can_fix_the_number_of_client_processes(runner):
    done = baseline(runner(client_processes=2))
    assert done.plan.client_processes == 2 and done.samples[0].client.processes == 2


class Deaf:
    """A server whose processes are all there and that is asked whether it answers."""

    base_url, served_name, log_path = "http://127.0.0.1:9", "m", None

    def __init__(self):
        self.asked = []

    def check_alive(self, ask=False):
        self.asked.append(ask)

    def pids(self):
        return []


@pytest.mark.parametrize(
    ("classes", "asked"),
    [((), False), ((Invalid.FAILED_REQUESTS,), True), ((Invalid.CLIENT_DIED,), True), ((Invalid.TOO_SHORT,), False)],
)
def test_failed_requests_may_tell_of_a_dead_engine_whose_server_lives(tmp_path, classes, asked):
    server = Deaf()
    made = sampling.Sampling(
        None, server, WORKLOAD, tmp_path, {}, lambda _: None, lambda _: None, guard=None, judge=lambda _: ()
    )
    sample = sampling.with_problems(empty_sample(0), [sampling.Problem(kind, "said") for kind in classes])
    made._check_server(sample)
    assert server.asked == [asked]
