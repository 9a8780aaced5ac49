"""Whole tunes in which the winner loses its proof: the next finalist has its turn, and the end says what happened."""

from __future__ import annotations

import json

import pytest

from advisor import tune as pipeline
from advisor.progress import Silent
from advisor.records import Decision
from advisor.report.summary import summary
from advisor.serving_profile.store import read_profile
from advisor.study import setup
from tests.study_help import sample
from tests.test_tune import FakeClient, children, fakes, request_for  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow

BEST, NEXT = "300", "240"
SPACE = f"settings: {{FAKE_TOK_S: {{values: [default, {BEST}, {NEXT}]}}}}"


class ShortOfBreath(FakeClient):
    """The fastest candidates do not bear a load that goes on."""

    fading = (BEST,)

    def sample(self, server_url, served_name, workload, seed, folder):
        speed = json.loads((folder / "command.json").read_text())["env"].get("FAKE_TOK_S")
        if "soak" in folder.name and speed in self.fading:
            return sample(seed, 100.0, problems=["3 of 64 requests failed"])
        return super().sample(server_url, served_name, workload, seed, folder)


@pytest.fixture(autouse=True)
def client(fakes, monkeypatch):  # noqa: F811
    monkeypatch.setattr(setup, "BenchClient", ShortOfBreath)


def test_the_next_finalist_is_tried_and_proven(request_for):  # noqa: F811
    answer = pipeline.tune(request_for(SPACE), Silent())
    result = answer.result
    assert [trial.phase for trial in result.trials] == [
        "baseline", "search", "search", *["confirm"] * 6, "soak", *["confirm"] * 6, "soak", "restart",
    ]  # fmt: skip
    assert result.verdict.decision is Decision.IMPROVED and result.tuned_command.env["FAKE_TOK_S"] == NEXT
    first_line = summary(result, answer.profile_path)[0]
    assert first_line.startswith(f"improved: FAKE_TOK_S={NEXT} gives ")
    assert f"FAKE_TOK_S={BEST} gave" in first_line and "did not stand the soak" in first_line
    profile = read_profile(answer.profile_path)
    assert profile.serve.env["FAKE_TOK_S"] == NEXT and profile.proof is not None
    winner, fallen = profile.decision.finalists
    assert winner.failed is None and fallen.candidate == f"FAKE_TOK_S={BEST}"
    assert "invalid_measurement: 3 of 64 requests failed" in fallen.failed
    assert children() == []


def test_a_study_that_ended_so_launches_nothing_more(request_for):  # noqa: F811
    first = pipeline.tune(request_for(SPACE), Silent())
    again = pipeline.tune(request_for(SPACE), Silent())
    assert again.result.trials == first.result.trials and again.result.verdict == first.result.verdict


def test_the_default_stays_where_all_of_them_lose_it(request_for, monkeypatch):  # noqa: F811
    monkeypatch.setattr(ShortOfBreath, "fading", (BEST, NEXT))
    answer = pipeline.tune(request_for(SPACE), Silent())
    assert answer.result.verdict.decision is Decision.KEEP_DEFAULTS
    assert answer.result.tuned_command == answer.result.baseline_command
    reason = answer.result.verdict.reason
    assert all(f"FAKE_TOK_S={speed} gave" in reason for speed in (BEST, NEXT))
    assert len(summary(answer.result, answer.profile_path)) <= 7
