"""Whole verifications of whole tunes against the fake engine: real processes, real HTTP, real journals."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from advisor import tune as pipeline
from advisor.cli import app
from advisor.errors import InputError, Interrupted, LaunchesFailed
from advisor.journal import read_events
from advisor.progress import Silent
from advisor.study import launches as launching
from advisor.study import setup
from advisor.verification import run as verifying
from advisor.verification.figure import Held
from advisor.verification.origin import Wish
from tests.test_tune import FACTS, FakeResolution, children, install_fakes, requests_in

pytestmark = pytest.mark.slow

FASTER = "settings: {FAKE_TOK_S: {values: [default, 300]}}"
SLOWER = "settings: {enforce_eager: {values: [default, true]}}"


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    install_fakes(monkeypatch)
    monkeypatch.setattr(verifying, "Resolution", FakeResolution)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """improved and keep-defaults, each tuned once."""
    found = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        install_fakes(monkeypatch)
        for name, space in (("improved", FASTER), ("kept", SLOWER)):
            folder = tmp_path_factory.mktemp(name)
            answer = pipeline.tune(requests_in(folder)(space, measure_all=True), Silent())
            assert answer.result.verdict.decision.value == {"kept": "keep-defaults"}.get(name, name)
            found[name] = answer.profile_path
            # The fake client's samples say that they took a minute, and so does the profile of their soak.
            text = re.sub(r"soak_s: [\d.]+", "soak_s: 0.2", found[name].read_text())
            found[name].write_text(text)
    return found


@pytest.fixture
def wish(tmp_path):
    def make(profile, **changes):
        usual = {"model": "fake-model", "runs": tmp_path / "runs", "engine_python": FACTS.engine.python}
        return Wish(profile, **{**usual, **changes})

    return make


def trials_of(answer):
    return [event["trial"] for event in read_events(answer.study_folder / "trials.jsonl") if event["event"] == "trial"]


def test_an_improved_profile_holds(profiles, wish):
    answer = verifying.verify(wish(profiles["improved"]), Silent())
    assert answer.judgement.held is Held.HOLDS, answer.lines
    trials = trials_of(answer)
    assert [trial.phase for trial in trials] == ["confirm"] * 6
    # Interleaved, the default first, and each round the other way round.
    assert [trial.candidate.is_baseline for trial in trials] == [True, False, False, True, True, False]
    assert {trial.launcher for trial in trials} == {"cold"}
    assert trials[1].command.env["FAKE_TOK_S"] == "300" and "FAKE_TOK_S" not in trials[0].command.env
    seeds = {sample.seed for trial in trials for sample in trial.samples}
    used = set(yaml.safe_load(profiles["improved"].read_text())["workload"]["seeds"])
    assert len(seeds) == 3 and not seeds & used and min(seeds) > 1_000_000
    assert children() == []


def test_keep_defaults_launches_the_default_alone_and_the_challenger_when_asked(profiles, wish):
    answer = verifying.verify(wish(profiles["kept"]), Silent())
    assert answer.judgement.held is Held.HOLDS, answer.lines
    assert [trial.candidate.is_baseline for trial in trials_of(answer)] == [True] * 3
    other = verifying.verify(wish(profiles["kept"], challenger=True), Silent())
    assert [trial.candidate.label for trial in trials_of(other)].count("enforce_eager") == 3
    assert other.judgement.verdict.held is Held.HOLDS and other.study_folder != answer.study_folder


def test_an_engine_that_became_slower_refutes_the_figure(profiles, wish, monkeypatch):
    real = setup.BenchClient.sample

    def slower(self, *arguments):
        found = real(self, *arguments)
        return dataclasses.replace(found, output_tok_s=found.output_tok_s * 0.8)

    monkeypatch.setattr(setup.BenchClient, "sample", slower)
    answer = verifying.verify(wish(profiles["improved"]), Silent())
    assert answer.judgement.held is Held.FAILS and answer.judgement.verdict.held is Held.HOLDS
    assert any("differs by more than 5%" in line for line in answer.lines)


def test_it_goes_on_after_ctrl_c_and_a_finished_one_launches_nothing(profiles, wish, monkeypatch):
    real, calls = launching.Launches.__call__, []

    def interrupted(self, *step):
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, *step)

    monkeypatch.setattr(launching.Launches, "__call__", interrupted)
    with pytest.raises(Interrupted, match="no server is running") as caught:
        verifying.verify(wish(profiles["improved"]), Silent())
    assert "the same command goes on" in caught.value.hint
    monkeypatch.setattr(launching.Launches, "__call__", real)
    answer = verifying.verify(wish(profiles["improved"]), Silent())
    trials = trials_of(answer)
    assert [trial.number for trial in trials] == list(range(6)) and answer.judgement.held is Held.HOLDS
    again = verifying.verify(wish(profiles["improved"]), Silent())
    assert trials_of(again) == trials and again.document["result"] == "holds"
    more = verifying.verify(wish(profiles["improved"], launches=4), Silent())
    assert len(trials_of(more)) == 8 and trials_of(more)[:6] == trials


def test_a_budget_that_ends_is_told_and_claims_no_more_than_was_measured(profiles, wish):
    answer = verifying.verify(wish(profiles["improved"], budget_s=0.01), Silent())
    assert answer.judgement.held is Held.UNCLEAR and "budget: " in "\n".join(answer.lines)
    assert len(trials_of(answer)) < 6


def test_a_default_that_does_not_start_any_more_is_told(profiles, wish):
    broken = wish(profiles["kept"]).runs.parent / "broken.yaml"
    data = yaml.safe_load(profiles["kept"].read_text())
    data["study"]["serve_env"]["FAKE_FAULT"] = data["serve"]["env"]["FAKE_FAULT"] = "bad_option"
    data["serve"]["command"] = "FAKE_FAULT=bad_option " + data["serve"]["command"]
    broken.write_text(yaml.safe_dump(data))
    with pytest.raises(LaunchesFailed, match="the default failed in 3 fresh launches"):
        verifying.verify(wish(broken), Silent())


def test_a_recommendation_that_does_not_start_any_more_does_not_hold_and_is_launched_once(profiles, wish, tmp_path):
    data = yaml.safe_load(profiles["improved"].read_text().replace("FAKE_TOK_S=300", "FAKE_FAULT=bad_option FAKE_TOK_S=300"))
    data["serve"]["env"]["FAKE_FAULT"] = "bad_option"
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(data))
    answer = verifying.verify(wish(tmp_path / "broken.yaml"), Silent())
    assert answer.judgement.held is Held.FAILS and answer.judgement.figures[0].held is Held.HOLDS, answer.lines
    assert [trial.candidate.is_baseline for trial in trials_of(answer)] == [True, False, True, True]
    assert any(line.startswith("tuned: a fresh launch failed: ") for line in answer.lines)


def test_other_facts_are_told_first(profiles, wish, monkeypatch):
    other = dataclasses.replace(FACTS, engine=dataclasses.replace(FACTS.engine, torch_version="2.12.0"))
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: other)
    answer = verifying.verify(wish(profiles["kept"]), Silent())
    assert answer.lines[0] == "differs from the profile: torch 2.11.0 -> 2.12.0"
    assert answer.document["differences"] == ["torch 2.11.0 -> 2.12.0"]


def test_another_machine_on_the_same_day_is_told_how_to_go_on(profiles, wish, monkeypatch):
    """The hint is one that this command has: `--study` is `advisor tune`'s."""
    verifying.verify(wish(profiles["kept"]), Silent())
    other = dataclasses.replace(FACTS, engine=dataclasses.replace(FACTS.engine, torch_version="2.12.0"))
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: other)
    with pytest.raises(InputError, match="was measured with torch") as caught:
        verifying.verify(wish(profiles["kept"]), Silent())
    assert "--runs" in caught.value.hint and "--study" not in caught.value.hint


def test_the_proof_is_repeated_when_asked(profiles, wish):
    answer = verifying.verify(wish(profiles["improved"], proof=True), Silent())
    assert [trial.phase for trial in trials_of(answer)] == ["confirm"] * 6 + ["soak", "restart"]
    assert answer.judgement.held is Held.HOLDS, answer.lines


def test_a_winner_that_loses_its_repeated_proof_does_not_hold(profiles, wish, monkeypatch):
    real = launching.Launches.__call__

    def dying(self, phase, candidate, number=0):
        made = real(self, phase, candidate, number)
        if phase != "soak":
            return made
        self._study.trials[-1] = dead = dataclasses.replace(made, outcome=launching.Outcome.CRASHED, reason="died", samples=())
        return dead

    monkeypatch.setattr(launching.Launches, "__call__", dying)
    answer = verifying.verify(wish(profiles["improved"], proof=True), Silent())
    assert answer.judgement.held is Held.FAILS, answer.lines


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("kept", {"proof": True}, "no winner to prove"),
        ("kept", {"launches": 1}, "gives no interval"),
    ],
)
def test_what_cannot_be_verified_is_told_before_anything_starts(profiles, wish, name, changes, said, tmp_path):
    with pytest.raises(InputError) as caught:
        verifying.verify(wish(profiles[name], **changes), Silent())
    assert said in f"{caught.value.problem} {caught.value.hint}"
    assert not list(tmp_path.glob("runs/*/launches"))


def test_a_record_holds_no_secret_and_no_place_of_this_machine(profiles, wish, tmp_path, monkeypatch):
    real = launching.Launches.__call__

    def failing(self, *step):
        made = real(self, *step)
        if made.number != 1:
            return made
        reason = f"cannot read {tmp_path}/weights with hf_secret123"
        self._study.trials[-1] = bad = dataclasses.replace(made, outcome=launching.Outcome.CRASHED, reason=reason, samples=())
        return bad

    monkeypatch.setattr(launching.Launches, "__call__", failing)
    data = yaml.safe_load(profiles["kept"].read_text())
    data["study"]["serve_env"]["HF_TOKEN"] = data["serve"]["env"]["HF_TOKEN"] = "${HF_TOKEN}"
    data["serve"]["command"] = "HF_TOKEN=${HF_TOKEN} " + data["serve"]["command"]
    (tmp_path / "secret.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.setenv("HF_TOKEN", "hf_secret123")
    answer = verifying.verify(wish(tmp_path / "secret.yaml"), Silent())
    assert trials_of(answer)[0].command.env["HF_TOKEN"] == "hf_secret123"
    text = json.dumps(answer.document)
    assert "hf_secret123" not in text and str(tmp_path) not in text
    assert "cannot read weights with ${HF_TOKEN}" in text
    assert answer.document["command"] == "advisor verify secret.yaml --launches 3 --tolerance 5"


def test_the_command_says_it_in_lines_json_and_exit_code(profiles, tmp_path):
    words = ["verify", str(profiles["kept"]), "--model", "fake-model", "--runs", str(tmp_path / "r"), "--launches", "2"]
    done = CliRunner().invoke(app, [*words, "--tolerance", "40", "--output", str(tmp_path / "record.yaml")])
    assert done.exit_code == 0, done.output
    assert "holds (2 launches in" in done.stdout.splitlines()[-1] and len(done.stdout.splitlines()) <= 6
    record = yaml.safe_load((tmp_path / "record.yaml").read_text())
    assert record["schema"] == "advisor.verification/1" and record["result"] == "holds"
    again = CliRunner().invoke(app, [*words, "--tolerance", "0.1", "--json"])
    assert again.exit_code in (1, 5) and json.loads(again.stdout)["tolerance_percent"] == 0.1
    assert CliRunner().invoke(app, ["verify", str(profiles["kept"]), "--launches", "1"]).exit_code == 2
