"""Whole tunes in which a candidate hangs: the budget ends its launch, and says nothing of it. No second is fixed: the room of the
search is counted from what the default's launch took here.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from advisor import tune as pipeline
from advisor.launch import server
from advisor.launch.readiness import LaunchLimits
from advisor.progress import Silent
from advisor.records import Decision, Outcome
from advisor.report.terminal import Lines
from advisor.search import budget as budgets
from advisor.search.untried import NO_TIME
from advisor.study import setup
from tests.fakes.fake_bench import FakeBench
from tests.study_help import yaml_of
from tests.test_faults import BenchClient, quick  # noqa: F401
from tests.test_tune import children, fakes, requests_in  # noqa: F401

pytestmark = pytest.mark.slow

HANGS = "settings: {FAKE_FAULT: {values: [default, hang]}}"
STALLS = "settings: {FAKE_FAULT: {values: [default, 'stalls_after_n:3']}}"  # the first token, and half of the first wave
QUIET_S = 1.5


@pytest.fixture
def request_for(tmp_path):
    return requests_in(tmp_path, confirm_launches=2, launcher="cold", serve_args="--enforce-eager")


def with_room(request, launches):
    """The request with its default launched, and a budget that leaves the search so many launches' time."""
    none = dataclasses.replace(request.budget, trials=0, total_s=0.1)
    (baseline,) = pipeline.tune(dataclasses.replace(request, budget=none), Silent()).result.trials
    reserve_s = request.budget.reserve_s([baseline], request.objective)
    total_s = reserve_s + (1 + launches) * baseline.total_s
    return dataclasses.replace(request, budget=dataclasses.replace(request.budget, total_s=total_s)), baseline


def tuned(request):
    told: list[str] = []
    answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
    (cut_off,) = [trial for trial in answer.result.trials if trial.phase == "search"]
    assert children() == []
    return answer, cut_off, told


def test_a_hanging_start_ends_with_the_budget_and_is_not_blamed(request_for, tmp_path):
    request, baseline = with_room(request_for(HANGS), 1.5)
    answer, cut_off, told = tuned(request)
    assert cut_off.outcome is Outcome.INTERRUPTED and cut_off.reason == f"{NO_TIME}: cut off before it was ready"
    limits = request.budget.search_limits([baseline], request.objective, request.limits)
    assert limits.whole_s <= cut_off.total_s < request.limits.stall_s / 4
    verdict = answer.result.verdict
    assert verdict.decision is Decision.INCONCLUSIVE
    assert verdict.reason.startswith("no other setting was tried to the end: budget: ") and "kept for" in verdict.reason
    assert any(f"interrupted: {NO_TIME}" in line for line in told) and not any("not launched" in line for line in told)
    assert yaml_of(answer.profile_path)["study"]["outcomes"]["interrupted"] == 1
    known = tmp_path / "runs" / "failures.jsonl"
    assert "hang" not in (known.read_text() if known.exists() else "")
    (account,) = list((tmp_path / "runs").glob("*/time.jsonl"))
    parts = json.loads(account.read_text().splitlines()[-1])
    assert "failed starts" in json.dumps(parts)
    text = answer.profile_path.read_text()
    again, _, _ = tuned(request)
    assert again.result.trials == answer.result.trials and answer.profile_path.read_text() == text


def test_with_a_larger_budget_it_is_tried_again_and_then_the_silence_is_its_own(request_for, monkeypatch):
    request, _ = with_room(request_for(HANGS), 1.5)
    tuned(request)
    monkeypatch.setattr(budgets, "SILENT_LEAST_S", QUIET_S)
    monkeypatch.setattr(budgets, "SILENT_STARTS", 0.0)
    ample = dataclasses.replace(request, budget=dataclasses.replace(request.budget, total_s=600.0))
    result = pipeline.tune(ample, Silent()).result
    first, second = [trial for trial in result.trials if trial.phase == "search"]
    assert (first.outcome, second.outcome) == (Outcome.INTERRUPTED, Outcome.TIMED_OUT)
    assert f"no sign of life for {QUIET_S:.0f} s" in second.reason
    assert result.verdict.decision is Decision.KEEP_DEFAULTS  # all were tried, and failed by themselves
    assert result.verdict.reason == "no other setting started and measured well"


def test_a_failure_that_leaves_no_time_for_the_rest_keeps_no_defaults(request_for, monkeypatch):
    """The candidate that hangs has used up the search by its own silence, and another one was left."""
    monkeypatch.setattr(budgets, "OVERRUN", 1e6)
    monkeypatch.setattr(server, "SIGNS_EVERY_S", 0.2)
    space = "settings: {FAKE_FAULT: {values: [default, hang, spin]}}"
    request, baseline = with_room(request_for(space), 1.05)
    request = dataclasses.replace(request, limits=LaunchLimits(baseline.total_s, baseline.total_s))
    answer, failed, told = tuned(request)
    assert failed.outcome is Outcome.TIMED_OUT
    assert answer.result.verdict.decision is Decision.INCONCLUSIVE
    words = "no other setting started and measured well, and not all were tried: budget: "
    assert answer.result.verdict.reason.startswith(words)
    assert any(f"not launched: 1 candidate: {NO_TIME}" in line for line in told)
    assert tuned(request)[0].result.verdict == answer.result.verdict


def test_a_load_that_stalls_ends_with_the_budget(request_for, monkeypatch):
    def patient(python, model, *, root, **_):
        return BenchClient(python, model, root=root, timeout_s=600.0, process=FakeBench)

    monkeypatch.setattr(setup, "BenchClient", patient)
    monkeypatch.setattr(server, "ALIVE_TIMEOUT_S", 120.0)
    request, _ = with_room(request_for(STALLS), 3.0)
    answer, cut_off, _ = tuned(request)
    assert cut_off.outcome is Outcome.INTERRUPTED and cut_off.reason == f"{NO_TIME}: cut off while it was measured"
    assert cut_off.start_s and cut_off.warmup_s and cut_off.stop_s and not cut_off.samples
    assert cut_off.total_s < 120.0
    assert answer.result.verdict.decision is Decision.INCONCLUSIVE
