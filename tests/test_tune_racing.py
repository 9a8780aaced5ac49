"""Whole tunes against the fake engine in which slow candidates are dropped after one slice, and what that saves."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from advisor import tune as pipeline
from advisor.progress import Silent
from advisor.records import Decision, Trial, from_json
from advisor.report.summary import launches
from advisor.report.terminal import Lines
from advisor.study import setup
from tests.study_help import yaml_of
from tests.test_tune import FakeClient, fakes, request_for  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow

SLOW = "settings: {enforce_eager: {values: [default, true]}}"  # four times slower
# A ninth faster, and four times slower; trials are limited to each alone.
SLOW_AND_FAST = "settings: {attention_backend: {values: [default, FLASHINFER]}, enforce_eager: {values: [default, true]}}"


def tuned(request):
    told: list[str] = []
    answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
    return answer, told, yaml_of(answer.profile_path)


def searched(answer) -> dict[str, Trial]:
    return {trial.candidate.label: trial for trial in answer.result.trials if trial.phase == "search"}


def test_a_slow_candidate_is_dropped_after_one_slice_and_said_everywhere(request_for):  # noqa: F811
    answer, told, profile = tuned(request_for(SLOW))
    (slow,) = searched(answer).values()
    assert slow.ok and slow.samples == () and len(slow.slices) == 1 and slow.answers is None and slow.gate is None
    assert slow.dropped.reason.startswith("after a slice of 64 requests: output_tok_s -7")
    line = next(line for line in told if line.startswith("     1 search "))
    assert f"dropped {slow.dropped.reason}" in line
    assert ", 1 dropped early" in launches(answer.result.trials, 60)
    (entry,) = [item for item in profile["study"]["candidates"] if item["candidate"] == "enforce_eager"]
    assert entry["state"] == "ok" and entry["dropped"] == slow.dropped.reason and entry["score"] == pytest.approx(50, rel=0.1)
    verdict = answer.result.verdict
    assert verdict.decision is Decision.KEEP_DEFAULTS
    assert verdict.reason == f"no candidate could win: enforce_eager was dropped {slow.dropped.reason}"


def test_only_what_can_win_is_measured_in_full_and_confirmed(request_for):  # noqa: F811
    answer, _, profile = tuned(request_for(SLOW_AND_FAST))
    found = searched(answer)
    fast = found.pop("attention_backend=FLASHINFER")
    assert fast.dropped is None and len(fast.samples) == 1
    assert found and all(slow.dropped is not None and slow.samples == () for slow in found.values())
    first = {trial.slices[0].pair_seed for trial in (answer.result.trials[0], fast, *found.values())}
    assert len(first) == 1
    assert len(answer.result.trials[0].slices) == 3
    verdict = answer.result.verdict
    assert verdict.decision is Decision.IMPROVED and verdict.winner == fast.candidate
    fresh = [trial for trial in answer.result.trials if trial.phase not in ("baseline", "search")]
    assert fresh and all(trial.slices == () and trial.dropped is None for trial in fresh)
    assert {trial.candidate.label for trial in fresh} == {"default", fast.candidate.label}
    order = [item["candidate"] for item in profile["study"]["candidates"]]
    assert order[:2] == [fast.candidate.label, "default"] and set(order[2:]) == set(found)  # by their estimates


def test_a_study_that_goes_on_races_against_what_an_earlier_session_measured(request_for):  # noqa: F811
    pipeline.tune(request_for(SLOW, trials=0, budget="0.1s"), Silent())
    answer, _, _ = tuned(request_for(SLOW, trials=1))
    (slow,) = searched(answer).values()
    assert slow.dropped is not None and "against default" in slow.dropped.reason
    lines = [json.loads(line) for line in (answer.study_folder / "trials.jsonl").read_text().splitlines()]
    assert from_json(Trial, lines[slow.number]["trial"]).dropped == slow.dropped
    again, _, _ = tuned(request_for(SLOW, trials=1))
    assert again.result.trials == answer.result.trials


def test_the_default_of_another_day_drops_nothing(request_for, tmp_path):  # noqa: F811
    pipeline.tune(request_for(SLOW, trials=0, budget="0.1s"), Silent())
    (journal,) = (tmp_path / "runs").glob("*/trials.jsonl")
    event = json.loads(journal.read_text())
    event["trial"]["started_at"] = "2020-01-01T00:00:00+00:00"
    journal.write_text(json.dumps(event) + "\n")
    answer, _, _ = tuned(request_for(SLOW, trials=1))
    (slow,) = searched(answer).values()
    assert slow.dropped is None and len(slow.samples) == 1 and len(slow.slices) == 1


def test_a_person_can_have_everything_measured_in_full(request_for):  # noqa: F811
    answer, _, _ = tuned(request_for(SLOW, measure_all=True))
    assert [trial.phase for trial in answer.result.trials] == ["baseline", "search", *["confirm"] * 6]
    assert all(trial.slices == () and trial.dropped is None for trial in answer.result.trials)


def test_an_older_study_without_slices_goes_on_and_drops_by_its_samples(request_for, tmp_path):  # noqa: F811
    """A journal as it was written before there were slices."""
    pipeline.tune(request_for(SLOW, trials=0, budget="0.1s", samples=2), Silent())
    (journal,) = (tmp_path / "runs").glob("*/trials.jsonl")
    event = json.loads(journal.read_text())
    del event["trial"]["slices"], event["trial"]["plan"]["slice_prompts"]
    journal.write_text(json.dumps(event) + "\n")
    answer, _, _ = tuned(request_for(SLOW, trials=1, samples=2))
    (slow,) = searched(answer).values()
    assert slow.slices == () and len(slow.samples) == 1
    assert slow.dropped.reason.startswith("after 1 of 2 samples: output_tok_s -7")


# ---------------------------------------------------------------- what it saves


class PacedClient(FakeClient):
    """A sample takes as long as its requests do at the launch's speed: two seconds for 48 of them at 48 tokens a second.

    So two samples take seconds more than a slice, however long a start may take that others on the machine delay.
    """

    def sample(self, server_url, served_name, workload, seed, folder):
        taken = super().sample(server_url, served_name, workload, seed, folder)
        time.sleep(2 * workload.num_prompts / taken.output_tok_s)
        return taken


def test_a_slow_candidate_costs_a_fraction_of_the_seconds(request_for, monkeypatch):  # noqa: F811
    """One slice of 8 requests instead of two samples of 48, in the seconds of the journal and of the budget."""
    monkeypatch.setattr(setup, "BenchClient", PacedClient)

    def slow_one(**more) -> Trial:
        asked = request_for(SLOW, samples=2, study=f"all-{bool(more)}", **more)
        once = dataclasses.replace(asked.budget, confirm_rounds=1, confirm_most=1)
        answer = pipeline.tune(dataclasses.replace(asked, budget=once), Silent())
        return next(trial for trial in answer.result.trials if trial.phase == "search")

    quick, whole = slow_one(), slow_one(measure_all=True)
    assert quick.dropped is not None and whole.dropped is None and len(whole.samples) == 2
    assert quick.measure_s < 0.4 * whole.measure_s and quick.total_s < whole.total_s - 1.0


# ---------------------------------------------------------------- several loads


def test_several_loads_share_each_launch_and_reach_the_profile(request_for, tmp_path):  # noqa: F811
    path = tmp_path / "both.yaml"
    path.write_text("input_tokens: 64\noutput_tokens: 32\nnum_prompts: 48\nconcurrency: [1, 4]\n")
    answer, told, profile = tuned(request_for(SLOW, workload=str(path)))
    baseline, slow = answer.result.trials[:2]
    assert [item.load for item in baseline.samples] == [4, 1] and len(baseline.slices) == 3 * 2
    assert slow.dropped.reason.startswith("after a slice at each of 2 loads: output_tok_s -7") and slow.samples == ()
    assert any(", at 1: " in line and ", 4: " in line for line in told if line.startswith("     0 baseline"))
    assert profile["workload"]["concurrency"] == 4 and profile["workload"]["loads"] == [1, 4]
    assert [item["load"] for item in profile["measured"]["default"]["loads"]] == [1, 4]
    again, _, _ = tuned(request_for(SLOW, workload=str(path)))
    assert again.result.trials == answer.result.trials
