"""Whole tunes with another goal than throughput, verified: real processes, HTTP and journals, the fake engine."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from advisor import tune as pipeline
from advisor.journal import read_events
from advisor.progress import Silent
from advisor.study import setup
from advisor.verification import run as verifying
from advisor.verification.figure import Held
from advisor.verification.origin import Wish
from tests.test_tune import FACTS, FakeResolution, install_fakes, requests_in
from tests.test_tune_goals import SLO, GoalClient, space

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    install_fakes(monkeypatch)
    monkeypatch.setattr(setup, "BenchClient", GoalClient)
    monkeypatch.setattr(verifying, "Resolution", FakeResolution)


@pytest.fixture
def profile_of(tmp_path):
    """The profile of a tune, its soak shortened: the fake client's samples say that they took ten seconds."""

    def make(space, **words):
        answer = pipeline.tune(requests_in(tmp_path, confirm_launches=3)(space, **words), Silent())
        path = answer.profile_path
        path.write_text(re.sub(r"soak_s: [\d.]+", "soak_s: 0.2", path.read_text()))
        return answer, path

    return make


def verified(path, tmp_path, **wish):
    asked = Wish(path, **{"model": "fake-model", "runs": tmp_path / "verified", "engine_python": FACTS.engine.python, **wish})
    answer = verifying.verify(asked, Silent())
    json.dumps(answer.document)
    trials = [event["trial"] for event in read_events(answer.study_folder / "trials.jsonl") if event["event"] == "trial"]
    return answer, trials


def test_a_load_that_was_found_is_found_again(profile_of, tmp_path):
    """The default is seated for 13 requests in flight, the winner for 40."""
    tuned, path = profile_of(
        space(FAKE_CAPACITY=40), env=["FAKE_CAPACITY_DEFAULT=13"], objective=None, slo=SLO, find_load="concurrency"
    )
    assert tuned.result.verdict.decision.value == "improved"
    answer, trials = verified(path, tmp_path, proof=True)
    assert answer.judgement.held is Held.HOLDS, answer.lines
    assert [trial.phase for trial in trials] == ["confirm"] * 6 + ["soak", "restart"]
    assert {sample.load for trial in trials if trial.candidate.is_baseline for sample in trial.samples} == {13.0}
    assert all(len(trial.loads) > 3 for trial in trials if trial.phase == "confirm")
    said = "\n".join(answer.lines)
    assert "default: 13.00 requests in flight within the SLO in the profile, 13.00 here (3 launches)" in said
    assert "SLO: met by the recommendation in all 3 launches" in said


def test_a_default_that_breaks_its_slo_now_is_told(profile_of, tmp_path, monkeypatch):
    """As fast as ever: the throughput alone would say that all is well."""
    tuned, path = profile_of(space(FAKE_TOK_S=60), objective="output_tok_s", slo=SLO)
    assert tuned.result.verdict.decision.value == "keep-defaults"
    holds, _ = verified(path, tmp_path)
    assert holds.judgement.held is Held.HOLDS and "SLO: met by the default in all 3 launches" in "\n".join(holds.lines)
    changed = path.with_name("changed.yaml")
    changed.write_text(path.read_text())
    monkeypatch.setattr(GoalClient, "sample", late(GoalClient.sample))
    broken, _ = verified(changed, tmp_path)
    assert broken.judgement.held is Held.FAILS and broken.judgement.figures[0].held is Held.HOLDS, broken.lines
    assert broken.document["slo"]["held"] == "does-not-hold"


def late(sample):
    """The client, of which a tenth of the requests come too late."""
    def late_sample(self, *words):
        found = sample(self, *words)
        return dataclasses.replace(found, slo_within=dict.fromkeys(found.slo_within, 0.9), slo_share=0.9)

    return late_sample
