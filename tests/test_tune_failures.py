"""Whole tunes in which candidates fail: what is learned is told, kept for later studies, and can be tried again."""

from __future__ import annotations

import json

from advisor import tune as pipeline
from advisor.records import Outcome
from advisor.report.terminal import Lines
from tests.test_tune import fakes, request_for  # noqa: F401

# Every start with the fault fails, whatever the other setting is.
SPACE = "settings: {FAKE_FAULT: {values: [default, silent_exit]}, FAKE_X: {values: [default, 1, 2, 3]}}"


def tuned(request):
    told: list[str] = []
    answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
    return answer.result, told


def failed(result):
    return [trial for trial in result.trials if trial.outcome is Outcome.FAILED_TO_START]


def test_two_failures_rule_out_the_rest_and_say_so(request_for, tmp_path):  # noqa: F811
    result, told = tuned(request_for(SPACE))
    assert len(failed(result)) == 2  # of four candidates with the fault
    assert any("learned:" in line and "FAKE_FAULT" in line for line in told)
    assert any("not launched:" in line for line in told)
    lines = [json.loads(line) for line in (tmp_path / "runs" / "failures.jsonl").read_text().splitlines()]
    assert sum(bool(line["cause"]) for line in lines) == 2


def test_a_later_study_knows_it_and_can_be_told_to_try_again(request_for):  # noqa: F811
    tuned(request_for(SPACE, study="first"))
    later, told = tuned(request_for(SPACE, study="second"))
    assert failed(later) == [] and any("not launched:" in line for line in told)
    again, _ = tuned(request_for(SPACE, study="third", retry_failed=True))
    assert len(failed(again)) == 2
