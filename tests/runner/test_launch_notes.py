"""What a trial is told where the server's own log does not say what it runs."""

import dataclasses

import pytest

from advisor.engine.agreement import Agreement
from advisor.measure.workload import load_workload
from advisor.records import Active, Candidate, Command, LoadPoint, Objective, Outcome, SloLimit
from advisor.runner.base import Job
from advisor.runner.launch import NOT_COUNTED, NOTHING_SAID, Launch
from advisor.runner.real import RealRunner
from tests.runner.fakes import FACTS, QuietClient
from tests.study_help import sample


@pytest.mark.parametrize(
    ("version", "outcome", "said"),
    [(None, Outcome.OK, True), ("0.26.0", Outcome.OK, False), (None, Outcome.FAILED_TO_START, False)],
)
def test_settings_that_nobody_can_confirm_are_taken_on_trust_and_said_so(tmp_path, version, outcome, said):
    launch = Launch(Job(0, "baseline", Candidate(), (0,)), Command(("vllm",), {}), tmp_path)
    launch.outcome = outcome
    launch.check(Agreement(Active(vllm_version=version), None, None, ("another note",)))
    assert launch.notes == [*([NOTHING_SAID] if said else []), "another note"]
    assert launch.outcome is outcome


@pytest.mark.parametrize(
    ("hits", "preemptions", "said"), [(None, None, True), (0.0, 0, False), (None, 0, False), (0.0, None, False)]
)
def test_a_server_without_counters_is_not_taken_for_one_that_counted_nothing(tmp_path, hits, preemptions, said):
    """What its page does not tell cannot speak against a sample: that has to be known of it."""
    launch = Launch(Job(0, "baseline", Candidate(), (0,)), Command(("vllm",), {}), tmp_path)
    launch.samples = [dataclasses.replace(sample(0, 100.0), prefix_hit_ratio=hits, preemptions=preemptions)]
    launch.check(Agreement(Active(vllm_version="0.26.0"), None, None, ()))
    assert launch.notes == [NOT_COUNTED] * said and launch.outcome is Outcome.OK
    launch.notes, launch.samples = [], [sample(0, 0.0, problems=("the benchmark client died",))]
    launch.check(Agreement(Active(vllm_version="0.26.0"), None, None, ()))
    assert launch.notes == []


@pytest.mark.parametrize(
    ("find_load", "loads", "most"),
    [(None, (), 4), ("concurrency", (4.0, 16.0, 8.0), 16), ("concurrency", (), None), ("rate", (2.5,), None)],
)
def test_steps_are_held_against_the_requests_that_a_search_for_the_load_really_ran(tmp_path, find_load, loads, most):
    """Not against the number that the search began with, above which a decode step would be none."""
    goal = Objective(f"max_{find_load}", (), (SloLimit("ttft_ms", 500.0),), find_load) if find_load else Objective()
    runner = RealRunner(FACTS, load_workload("tiny"), (), {}, tmp_path, QuietClient(), objective=goal)
    launch = Launch(Job(0, "search", Candidate(), (0,)), Command(("vllm",), {}), tmp_path)
    launch.loads = tuple(LoadPoint(load, True, 1.0) for load in loads)
    assert runner._in_flight(launch) == most
