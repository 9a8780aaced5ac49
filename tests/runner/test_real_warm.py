"""Which jobs of the real runner are forked, and what their trials say of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor.launch.warm import WarmLauncher
from advisor.measure.workload import load_workload
from advisor.records import Candidate, Trial, from_json, to_json
from advisor.runner.base import Job
from advisor.runner.real import RealRunner

from .fakes import FACTS, QuietClient, quiet_machine

WARM_SITE = Path(__file__).parents[1] / "fakes" / "warm_site"
ENV = {"PYTHONPATH": str(WARM_SITE), "FAKE_TIME_SCALE": "0.01"}


@pytest.fixture
def runner(tmp_path):
    warm = WarmLauncher(sys.executable, "LlamaForCausalLM", "cuda", ENV, tmp_path / "launcher.log")
    runner = RealRunner(
        FACTS, load_workload("tiny"), (), ENV, tmp_path, QuietClient(), judge_machine=quiet_machine, warm=warm
    )
    yield runner
    runner.close()
    assert warm.pid is None


def test_baseline_and_search_are_forked_and_nothing_that_is_reported(runner):
    phases = ["baseline", "search", "confirm", "soak", "restart", "quality"]
    trials = [runner.run(Job(number, phase, Candidate(), (0,))) for number, phase in enumerate(phases)]
    assert [trial.launcher for trial in trials] == ["warm", "warm", "cold", "cold", "cold", "cold"]
    assert [trial.launcher_s is not None for trial in trials] == [True, False, False, False, False, False]
    assert all(trial.ok and trial.checks_s is not None for trial in trials)
    assert from_json(Trial, to_json(trials[0])) == trials[0]


def test_why_a_candidate_was_launched_cold_stands_in_its_trial(runner):
    trial = runner.run(Job(0, "search", Candidate({"VLLM_READ_AT_IMPORT": "1"}), (0,)))
    assert trial.launcher == "cold"
    assert "launched cold: VLLM_READ_AT_IMPORT is read when vLLM is imported" in trial.notes


def test_a_journal_from_before_is_all_cold():
    plain = to_json(Trial(0, "search", Candidate(), "ok"))
    del plain["launcher"]
    assert from_json(Trial, plain).launcher == "cold"
