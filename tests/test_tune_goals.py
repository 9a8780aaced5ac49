"""Whole tunes against the fake engine with an SLO, several objectives, and a load that is found."""

from __future__ import annotations

import dataclasses
import json
import random
import time

import pytest

from advisor import tune as pipeline
from advisor.errors import InputError
from advisor.progress import Silent
from advisor.records import Decision, Trial, from_json, to_json
from advisor.report.summary import summary
from advisor.runner.real import RealRunner
from advisor.serving_profile.store import read_profile
from advisor.study import setup
from tests.study_help import sample, yaml_of
from tests.test_tune import FakeClient, fakes, requests_in  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

SLO = "ttft_p99<500ms"
LABEL = "ttft_p99<500ms"


class GoalClient(FakeClient):
    """Figures from the launch's variables: FAKE_TOK_S tok/s, FAKE_TTFT ms, FAKE_WITHIN of the requests up to FAKE_CAPACITY.

    FAKE_TRADE raises the speed and doubles the TTFT.
    """

    def sample(self, server_url, served_name, workload, seed, folder):
        self._send(server_url, served_name, requests=1, tokens=1)
        env = json.loads((folder / "command.json").read_text())["env"]
        noise = random.Random(f"{seed} {folder.name}")
        trade = "FAKE_TRADE" in env
        tok_s = float(env.get("FAKE_TOK_S", 130 if trade else 100)) * noise.gauss(1, 0.002)
        ttft = float(env.get("FAKE_TTFT", 200 if trade else 100)) * noise.gauss(1, 0.002)
        in_flight = workload.concurrency or 0
        fits = in_flight <= float(env.get("FAKE_CAPACITY", env.get("FAKE_CAPACITY_DEFAULT", 1e9)))
        within = float(env.get("FAKE_WITHIN", env.get("FAKE_WITHIN_DEFAULT", 1.0))) if fits else 0.5
        return dataclasses.replace(
            sample(seed, tok_s), ttft_ms={"mean": ttft, "p50": ttft, "p90": ttft, "p99": ttft}, slo_within={LABEL: within},
            slo_share=within, goodput_requests_s=6.4 * within, requests_s=float(in_flight or 6.4),
            in_flight=(2.0, 2.0, 2.0, 2.0) if workload.rate else (),
        )  # fmt: skip


@pytest.fixture(autouse=True)
def goal_client(fakes, monkeypatch):  # noqa: F811
    monkeypatch.setattr(setup, "BenchClient", GoalClient)


@pytest.fixture
def request_for(tmp_path):
    """Two fresh launches an arm are enough where the verdict is not the matter, or is beyond doubt."""
    return requests_in(tmp_path, confirm_launches=2)


class Notes(Silent):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def tuned(request, progress=None):
    answer = pipeline.tune(request, progress or Silent())
    lines = summary(answer.result, answer.profile_path)
    assert len(lines) <= 7 and read_profile(answer.profile_path)
    return answer.result, yaml_of(answer.profile_path)["objective"], lines


def space(**values):
    rows = ", ".join(f"{name}: {{values: [default, {value}]}}" for name, value in values.items())
    return f"settings: {{{rows}}}"


def test_the_slo_keeps_the_faster_candidate_out(request_for):
    fast = "settings: {FAKE_TOK_S: {values: [default, 200]}}"
    request = request_for(fast, env=["FAKE_WITHIN=0.9"], objective="output_tok_s", slo=SLO)
    notes = Notes()
    result, goal, lines = tuned(request, notes)
    assert result.verdict.decision is Decision.KEEP_DEFAULTS and "none meets the SLO" in lines[0]
    assert "the default breaks the SLO: ttft_p99<500ms: 90.0% of the requests are within 500 ms" in notes.notes
    assert goal == {"metric": "output_tok_s", "better": "more", "slo": [LABEL]}
    assert [trial.phase for trial in result.trials] == ["baseline", "search", "confirm", "confirm"]
    assert {trial.candidate.label for trial in result.trials[2:]} == {"default"}  # nothing to confirm but what it differs by


def test_goodput_is_raised_and_its_share_reported(request_for):
    request = request_for(space(FAKE_WITHIN="0.9"), env=["FAKE_WITHIN_DEFAULT=0.6"], objective=None, slo=SLO)
    notes = Notes()
    result, goal, lines = tuned(request, notes)
    assert goal["metric"] == "goodput" and "60.0% of the default's requests are within the SLO" in notes.notes
    assert result.verdict.decision is Decision.IMPROVED and "requests/s within the SLO" in lines[0]
    assert result.verdict.ratio.value == pytest.approx(1.5)


def test_two_objectives_end_with_a_front_and_a_recommended_point(request_for):
    request = request_for(space(FAKE_TOK_S=130, FAKE_TTFT=200), objective="output_tok_s,ttft_ms.p99", storage=None)
    result, goal, lines = tuned(request)
    assert result.verdict.decision is Decision.IMPROVED and "ttft_ms.p99" in lines[0]
    assert result.verdict.winner.settings == {"FAKE_TOK_S": 130}
    assert goal["secondary"] == ["ttft_ms.p99"]
    (chosen,) = [point for point in goal["front"] if point["recommended"]]
    assert chosen["candidate"] == "FAKE_TOK_S=130" and chosen["why"].startswith(
        "the best output_tok_s of those that lose"
    )


def test_a_trade_is_not_recommended(request_for):
    result, goal, lines = tuned(request_for(space(FAKE_TRADE=1), objective="output_tok_s,ttft_ms.p99"))
    assert result.verdict.decision is Decision.KEEP_DEFAULTS and result.tuned_command == result.baseline_command
    assert lines[0].startswith("keep-defaults") and "ttft_ms.p99 +" in lines[0] and "a trade" in lines[0]
    assert {point["candidate"]: point["recommended"] for point in goal["front"]} == {
        "FAKE_TRADE=1": False,
        "default": True,
    }


def test_the_highest_load_within_the_slo_is_found_on_each_launch(request_for):
    request = request_for(space(FAKE_CAPACITY=13), objective=None, slo=SLO, find_load="concurrency", samples=2)
    notes = Notes()
    result, goal, _ = tuned(request, notes)
    assert goal["metric"] == "max_concurrency" and goal["find_load"] == "concurrency"
    limited = next(trial for trial in result.trials if trial.phase == "search")
    assert {item.load for item in limited.samples} == {13.0} and len(limited.loads) <= 10
    assert [point.met for point in limited.loads] == [point.load <= 13 for point in limited.loads]
    assert from_json(Trial, json.loads(json.dumps(to_json(limited)))) == limited
    assert any("the SLO is met at every load tried" in note for note in notes.notes)
    assert any("the SLO is met at 13 requests in flight, not at 14" in note for note in limited.notes)
    assert result.verdict.decision is Decision.KEEP_DEFAULTS


def test_a_winner_by_its_load_soaks_at_the_load_that_it_found(request_for, monkeypatch):
    """And not at the one that each search begins with, which proves nothing of it. The search is no part of the soak's time."""
    search = RealRunner._find_load

    def longer_than_the_soak(self, sampling, launch):
        search(self, sampling, launch)
        time.sleep(2.1 if launch.job.soak_s else 0.0)

    monkeypatch.setattr(RealRunner, "_find_load", longer_than_the_soak)
    wider = space(FAKE_CAPACITY=40)
    request = request_for(wider, env=["FAKE_CAPACITY_DEFAULT=13"], objective=None, slo=SLO, find_load="concurrency", soak="2s")
    result, _, lines = tuned(request)
    assert result.verdict.decision is Decision.IMPROVED, lines
    (soak,) = [trial for trial in result.trials if trial.phase == "soak"]
    found = soak.samples[0].load
    assert 38 <= found <= 40 and len(soak.samples) > 2 and {item.load for item in soak.samples} == {found}
    assert soak.ok and len({item.seed for item in soak.samples}) == len(soak.samples)
    assert min(item.seed for item in soak.samples[1:]) >= 100_000 + 50 * 10  # no prompt of the search again


def test_a_load_below_saturation_is_said_early_and_in_the_verdict(request_for):
    notes = Notes()
    request = request_for(space(FAKE_TOK_S=100), objective=None, overrides={"rate": 4.0})
    _, _, lines = tuned(request, notes)
    assert any("below saturation: the server keeps up with 4 requests/s" in note for note in notes.notes)
    assert "below saturation" in lines[0]


def test_each_goal_has_a_study_and_a_profile_of_its_own(request_for, tmp_path):
    goals = {
        "": {},
        "-goodput-ttft500": {"slo": SLO, "objective": None},
        "-goodput-ttft600": {"slo": "ttft_p99<600ms", "objective": None},
        "-ttft-p99": {"objective": "ttft_ms.p99"},
    }
    for slug, goal in goals.items():
        answer = pipeline.tune(request_for(space(FAKE_TOK_S=100), trials=0, budget="0.1s", **goal), Silent())
        assert answer.profile_path == tmp_path / "profiles" / "cpu" / f"fake-model-tiny{slug}.yaml"
        assert answer.study_folder.name == f"fake-model-cpu-tiny{slug}" and len(answer.result.trials) == 1
    assert len(list(tmp_path.glob("profiles/cpu/*.yaml"))) == len(goals)


def test_a_study_of_a_chosen_name_is_not_mixed_with_another_goal(request_for):
    given = {"trials": 0, "budget": "0.1s", "study": "s", "objective": None}
    pipeline.tune(request_for(space(FAKE_TOK_S=100), slo=SLO, **given), Silent())
    with pytest.raises(InputError, match="was measured with slo"):
        pipeline.tune(request_for(space(FAKE_TOK_S=100), slo="ttft_p99<600ms", **given), Silent())
