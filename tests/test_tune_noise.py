"""Whole tunes against the fake engine in which nothing is left to confirm: the default alone tells what launches differ by."""

from __future__ import annotations

import pytest

from advisor import tune as pipeline
from advisor.errors import Interrupted
from advisor.progress import Silent
from advisor.records import Decision, Outcome
from advisor.report.summary import summary
from advisor.report.terminal import Lines
from advisor.study import setup
from tests.study_help import yaml_of
from tests.test_tune import children, fakes, requests_in  # noqa: F401

pytestmark = pytest.mark.slow

BROKEN = "settings: {FAKE_FAULT: {values: [default, silent_exit]}}"


@pytest.fixture
def request_for(tmp_path):
    return requests_in(tmp_path, confirm_launches=2)


def tuned(request):
    """(answer, lines that a person saw, the answer's lines, profile as read back)"""
    told: list[str] = []
    answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
    return answer, told, summary(answer.result, answer.profile_path), yaml_of(answer.profile_path)


def test_it_is_measured_printed_and_kept_and_a_finished_study_launches_nothing(request_for):
    answer, told, lines, profile = tuned(request_for(BROKEN))
    trials = answer.result.trials
    assert [trial.phase for trial in trials] == ["baseline", "search", "confirm", "confirm"]
    fresh = trials[2:]
    assert all(trial.ok and trial.candidate.is_baseline and trial.launcher == "cold" for trial in fresh)
    assert not {s.seed for trial in fresh for s in trial.samples} & {s.seed for trial in trials[:2] for s in trial.samples}
    assert answer.result.verdict.decision is Decision.KEEP_DEFAULTS
    noise = profile["decision"]["noise_percent"]
    assert 0 < noise < 10 and "noise_not_measured" not in profile["decision"]
    assert lines[1].startswith("output tok/s: default ") and lines[1].endswith(f"launches of the default differ by {noise:.1f}%")
    assert profile["measured"]["default"]["phase"] == "confirm" and profile["measured"]["default"]["launches"] == 2
    assert profile["study"]["launches_by_phase"]["confirm"] == 2
    assert sum("the default alone is launched afresh" in line for line in told) == 1
    assert any("kept for the confirmation: room for the only candidate left, estimated at" in line for line in told)
    text = answer.profile_path.read_text()
    again, told, _, _ = tuned(request_for(BROKEN))
    assert again.result.trials == trials and answer.profile_path.read_text() == text
    assert not any("launched afresh" in line or "room for" in line for line in told)
    assert children() == []


def test_a_study_that_was_stopped_in_between_goes_on_and_repeats_nothing(request_for, monkeypatch):
    real = setup.Study.append

    def append(self, trial):
        real(self, trial)
        if len(self.trials) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(setup.Study, "append", append)
        with pytest.raises(Interrupted, match="no server is running"):
            pipeline.tune(request_for(BROKEN), Silent())
    answer, _, lines, _ = tuned(request_for(BROKEN))
    trials = answer.result.trials
    assert [(trial.phase, trial.outcome) for trial in trials[2:]] == [("confirm", Outcome.OK)] * 2
    assert len(trials) == 4 and {trial.round for trial in trials[2:]} == {0, 1}
    assert "launches of the default differ by" in lines[1] and "not measured" not in lines[1]


def test_a_budget_without_room_for_it_is_told(request_for):
    _, _, lines, profile = tuned(request_for(BROKEN, trials=0, budget="0.1s"))
    told = profile["decision"]["noise_not_measured"]
    assert told.startswith("it takes about ") and told.endswith(", the budget leaves 0.0s")
    assert lines[1] == f"output tok/s: what launches of the default differ by was not measured: {told}"
    assert profile["decision"]["reason"] == "no other setting was tried: 0 trials were asked for"


def test_where_earlier_failures_leave_nothing_to_launch_that_is_the_reason(request_for):
    """And not that the budget or --trials ended the search."""
    pipeline.tune(request_for(BROKEN), Silent())
    answer, _, lines, _ = tuned(request_for(BROKEN, study="another"))
    assert [trial.phase for trial in answer.result.trials] == ["baseline", "confirm", "confirm"]
    assert answer.result.verdict.decision is Decision.INCONCLUSIVE
    assert answer.result.verdict.reason == (
        "no other setting was tried: every distinct candidate is taken to fail, by what failed before"
    )
    assert "launches of the default differ by" in lines[1] and "not measured" not in lines[1]
    text = answer.profile_path.read_text()
    assert tuned(request_for(BROKEN, study="another"))[0].result.trials == answer.result.trials
    assert answer.profile_path.read_text() == text
