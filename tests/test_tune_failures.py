"""Whole tunes in which candidates fail: what is learned is told, kept for later studies, and can be tried again."""

from __future__ import annotations

import json

import pytest

from advisor import tune as pipeline
from advisor.records import Outcome
from advisor.report.terminal import Lines
from tests.test_tune import install_fakes, requests_in

pytestmark = pytest.mark.slow

# Every start with the fault fails, whatever the other setting is; without it each is slower than the default, so that one
# finalist is left.
SPACE = "settings: {FAKE_FAULT: {values: [default, silent_exit]}, FAKE_TOK_S: {values: [default, 150, 120, 90]}}"


def tuned(request):
    told: list[str] = []
    answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
    return answer.result, told


def failed(result):
    return [trial for trial in result.trials if trial.outcome is Outcome.FAILED_TO_START]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """(requests in its folder, result, lines that a person saw, the folder) of a study that knew nothing before."""
    folder = tmp_path_factory.mktemp("failures")
    request_for = requests_in(folder, confirm_launches=2)
    with pytest.MonkeyPatch.context() as monkeypatch:
        install_fakes(monkeypatch)
        yield request_for, *tuned(request_for(SPACE, study="first")), folder


def test_two_failures_rule_out_the_rest_and_say_so(first):
    _, result, told, folder = first
    assert len(failed(result)) == 2  # of four candidates with the fault
    assert any("learned:" in line and "FAKE_FAULT" in line for line in told)
    assert any("not launched:" in line for line in told)
    lines = [json.loads(line) for line in (folder / "runs" / "failures.jsonl").read_text().splitlines()]
    own = [line for line in lines if line["study"].startswith("first of ")]
    assert sum(bool(line["cause"]) for line in own) == 2


def test_a_later_study_knows_it_and_can_be_told_to_try_again(first):
    request_for = first[0]
    later, told = tuned(request_for(SPACE, study="second"))
    assert failed(later) == [] and any("not launched:" in line for line in told)
    again, _ = tuned(request_for(SPACE, study="third", retry_failed=True))
    assert len(failed(again)) == 2
