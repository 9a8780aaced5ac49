"""Whole tunes against a fake engine that runs something else than it was asked for: what is said, and whose the figure is."""

from __future__ import annotations

import pytest

from advisor import tune as pipeline
from advisor.progress import Silent
from advisor.records import Candidate, Decision, Outcome
from advisor.report.summary import launches
from advisor.report.terminal import Lines
from tests.study_help import yaml_of
from tests.test_tune import fakes, requests_in  # noqa: F401

pytestmark = pytest.mark.slow

BACKENDS = "settings: {attention_backend: {values: [default, FLASHINFER]}}"


@pytest.fixture
def request_for(tmp_path):
    """Two fresh launches an arm are enough where the verdict is not the matter, or is beyond doubt."""
    return requests_in(tmp_path, confirm_launches=2)


def tuned(request):
    """(answer, lines that a person saw, profile as written)"""
    told: list[str] = []
    answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
    return answer, told, yaml_of(answer.profile_path)


def line_of(told, number):
    return next(line for line in told if line.startswith(f"   {number:>3} "))


def test_a_backend_that_the_engine_replaces_by_the_default_s_never_wins(request_for):
    answer, told, profile = tuned(request_for(BACKENDS, env=["FAKE_ACTIVE_BACKEND=TRITON_ATTN"]))
    trial = answer.result.trials[1]
    assert (trial.outcome, trial.credited_to) == (Outcome.NOT_AS_REQUESTED, Candidate())
    line = line_of(told, 1)
    assert "not_as_requested: attention backend FLASHINFER was asked for, TRITON_ATTN runs" in line
    assert "count for default, which ran" in line
    assert answer.result.verdict.decision is Decision.KEEP_DEFAULTS
    assert "1 ran with other settings than asked for" in launches(answer.result.trials, 60)
    asked = next(item for item in profile["study"]["candidates"] if item["candidate"] == "attention_backend=FLASHINFER")
    assert asked == {**asked, "state": "not_as_requested", "ran_as": "default"} and "score" not in asked
    assert profile["study"]["outcomes"]["not_as_requested"] == 1
    assert profile["study"]["space"].endswith(".yaml")  # the test's own
    assert any(item["state"] == "not_as_requested" for item in profile["study"]["rejected"])


def test_a_figure_counts_for_the_block_size_that_the_page_names(request_for):
    space = "settings: {--block-size: {values: [default, 32]}, FAKE_BLOCK_SIZE: {values: [default, 64]}}"
    answer, told, profile = tuned(request_for(space))
    by_key = {trial.candidate.key: trial for trial in answer.result.trials if trial.phase == "search"}
    both = by_key[Candidate({"--block-size": 32, "FAKE_BLOCK_SIZE": 64}).key]
    assert (both.outcome, both.reason) == (Outcome.NOT_AS_REQUESTED, "--block-size 32 was asked for, 64 runs")
    ran = Candidate({"--block-size": 64, "FAKE_BLOCK_SIZE": 64})
    assert both.credited_to == ran and both.active.block_size == 64
    assert by_key[Candidate({"--block-size": 32}).key].ok
    assert f"count for {ran.label}, which ran" in line_of(told, both.number)
    theirs = next(item for item in profile["study"]["candidates"] if item["candidate"] == ran.label)
    assert theirs["state"] == "ok" and theirs["score"] > 0


def test_own_arguments_that_are_not_active_are_named_on_every_launch(request_for):
    given = request_for("settings: {enforce_eager: {values: [default, true]}}", serve_args="--block-size 32",
                        env=["FAKE_BLOCK_SIZE=64"])  # fmt: skip
    answer, told, profile = tuned(given)
    note = "--block-size 32 was asked for, 64 runs"
    assert all(trial.ok and note in trial.notes for trial in answer.result.trials)
    assert told.count(f"       note: {note}") == len(answer.result.trials)
    assert note in profile["active"]["default"]["notes"] and profile["active"]["default"]["block_size"] == 64


def test_graphs_that_no_step_used_are_not_as_requested(request_for):
    space = "settings: {cudagraph_mode: {values: [default, FULL_DECODE_ONLY]}}"
    request = request_for(space, serve_args="--cudagraph-metrics", env=["FAKE_STEP_MODE=NONE"], samples=4)
    answer, told, profile = tuned(request)
    baseline, trial = answer.result.trials[:2]
    assert baseline.ok and baseline.active.decode_modes == {"NONE": 1}
    assert any("100% of the decode steps" in note and "without a graph" in note for note in baseline.notes)
    assert trial.outcome is Outcome.NOT_AS_REQUESTED and trial.credited_to == Candidate({"cudagraph_mode": "NONE"})
    assert "decode steps of captured sizes ran in a FULL graph (100% without a graph)" in line_of(told, 1)
    assert profile["active"]["default"]["decode_modes"] == {"NONE": 1}


def test_graphs_that_steps_used_are_as_requested(request_for):
    space = "settings: {cudagraph_mode: {values: [default, FULL_DECODE_ONLY]}}"
    answer = pipeline.tune(request_for(space, serve_args="--cudagraph-metrics", samples=4), Silent())
    assert all(trial.ok and not [note for note in trial.notes if "steps" in note] for trial in answer.result.trials)
    assert all(trial.active.decode_modes == {"FULL": 1} for trial in answer.result.trials)
