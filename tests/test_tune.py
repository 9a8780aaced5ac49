"""A whole tune against the fake engine: real processes, real HTTP, real journal; only vLLM itself is missing."""

from __future__ import annotations

import errno
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from advisor import tune as pipeline
from advisor.errors import EnvironmentMismatch, InputError, Interrupted, LaunchesFailed
from advisor.progress import Silent
from advisor.records import BackendFacts, Decision, EngineFacts, Facts, GpuFacts, ModelFacts, Outcome
from advisor.request import request_from_words
from advisor.study import setup
from tests.fakes import fake_settings
from tests.study_help import sample, yaml_of

SITE = Path(__file__).parent / "fakes" / "site"
FACTS = Facts(
    GpuFacts("cpu", "Fake processor", "cpu", 2, 24.0),
    EngineFacts(
        sys.executable, "3.11", "0.26.0", "2.11.0", "cuda",
        backends=tuple(BackendFacts(name) for name in ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN")),
    ),
    ModelFacts("fake-model", "LlamaForCausalLM", "0" * 16, 2, 128, 2, 2, 64, 10000, 2048),
)  # fmt: skip


class FakeClient:
    """Sends real requests; the figure is the fake engine's own formula for the launched command, with a little noise.

    FAKE_TOK_S is another figure for a launch. The engine knows nothing of it: it need not be slow in fact, which takes seconds.
    """

    def __init__(self, *_, **__): ...

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def use_processes(self, count): ...

    def end_by(self, moment): ...

    def warm_up(self, server_url, served_name, workload):
        self._send(server_url, served_name, 1, 1)
        return sample(2_000_000_000, 100.0)

    def sample(self, server_url, served_name, workload, seed, folder):
        answers = self._send(server_url, served_name, requests=2, tokens=3)
        bad = [] if answers == [3, 3] else [f"a request got {min(answers)} of 3 tokens"]
        command = json.loads((folder / "command.json").read_text())
        settings = fake_settings.read(command["argv"])
        tok_s = float(command["env"].get("FAKE_TOK_S") or 1000 / fake_settings.tpot_ms(settings, 1))
        tok_s *= random.Random(f"{seed} {folder.name}").gauss(1, 0.005)
        return sample(seed, tok_s, 1000 / tok_s, bad)

    def _send(self, url, name, requests, tokens):
        body = {"model": name, "prompt": "a b c", "max_tokens": tokens, "ignore_eos": True}

        def one(_):
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60, trust_env=False, verify=False)
            return answer.json()["usage"]["completion_tokens"] if answer.status_code == 200 else 0

        with ThreadPoolExecutor(requests) as pool:
            return list(pool.map(one, range(requests)))


class FakeResolution:
    """Everything is accepted and resolves to itself."""

    def __init__(self, *_): ...

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def close(self): ...

    def resolve(self, arguments, env):
        fingerprint = json.dumps([list(arguments), dict(env)])
        return {
            "ok": True,
            "resolved": {"fingerprint": fingerprint, "max_num_seqs": 256, "max_num_batched_tokens": 8192},
        }


def install_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: FACTS)
    monkeypatch.setattr(pipeline, "Resolution", FakeResolution)
    monkeypatch.setattr(setup, "BenchClient", FakeClient)
    # Whoever else uses this machine while tests run must not change what they end with.
    monkeypatch.setattr(setup.taints, "judge", lambda *_: ())


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    install_fakes(monkeypatch)


def requests_in(folder: Path, **usual):
    """Makes requests whose files all lie in a folder. `usual` are words of the command line that differ from those below."""

    def make(space="settings: {attention_backend: {values: [default, FLASHINFER]}}", env=(), **changes):
        path = folder / "space.yaml"
        path.write_text(f"schema: advisor.space/1\nname: s\n{space}\n")
        words = {
            "model": "fake-model", "gpu": "cpu", "workload": "tiny", "overrides": {}, "budget": "10m", "trials": None,
            "confirm_launches": 3, "serve_args": "", "space": str(path), "objective": "output_tok_s",
            "engine_python": sys.executable, "samples": 1, "soak": "0.2s", "runs": folder / "runs",
            "output": folder / "profiles",
            "env": [f"PYTHONPATH={SITE}", "FAKE_TIME_SCALE=0.01", *env],
        }  # fmt: skip
        return request_from_words(**{**words, **usual, **changes})

    return make


@pytest.fixture
def request_for(tmp_path):
    return requests_in(tmp_path)


def children():
    import psutil

    def lives(process):
        try:
            return process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [process for process in psutil.Process().children(recursive=True) if lives(process)]


EAGER = "settings: {enforce_eager: {values: [default, true]}}"


def test_a_slower_setting_keeps_the_defaults(request_for):
    answer = pipeline.tune(request_for(EAGER, measure_all=True), Silent())
    assert answer.result.verdict.decision is Decision.KEEP_DEFAULTS
    assert answer.result.tuned_command == answer.result.baseline_command
    assert [trial.phase for trial in answer.result.trials] == ["baseline", "search", *["confirm"] * 6]
    assert all(trial.ok for trial in answer.result.trials)
    profile = yaml_of(answer.profile_path)
    assert profile["decision"]["outcome"] == "keep-defaults"
    assert children() == []


def test_a_much_faster_setting_is_improved_and_a_finished_study_launches_nothing(request_for):
    request = request_for("settings: {FAKE_TOK_S: {values: [default, 300]}}")
    answer = pipeline.tune(request, Silent())
    verdict = answer.result.verdict
    assert verdict.decision is Decision.IMPROVED and verdict.ratio.low > 1
    assert answer.result.tuned_command.env["FAKE_TOK_S"] == "300"
    text = answer.profile_path.read_text()
    again = pipeline.tune(request, Silent())
    assert again.result.trials == answer.result.trials and again.result.verdict == verdict
    assert answer.profile_path.read_text() == text


def test_failing_candidates_are_outcomes_and_the_journal_knows_them(request_for):
    space = "settings: {FAKE_FAULT: {values: [default, silent_exit, no_tokens]}}"
    answer = pipeline.tune(request_for(space), Silent())
    outcomes = [trial.outcome for trial in answer.result.trials]
    assert outcomes[:3] == [Outcome.OK, Outcome.FAILED_TO_START, Outcome.FAILED_TO_START]
    assert answer.result.verdict.decision is Decision.KEEP_DEFAULTS
    assert children() == []


def test_a_baseline_that_cannot_start_ends_at_once_with_its_own_lines(request_for):
    with pytest.raises(LaunchesFailed) as caught:
        pipeline.tune(request_for(EAGER, env=["FAKE_FAULT=bad_option"]), Silent())
    assert "baseline ended as" in caught.value.problem and "server.log" in caught.value.hint
    assert caught.value.exit_code == 4


def test_a_budget_that_tries_nothing_claims_nothing(request_for):
    answer = pipeline.tune(request_for(EAGER, budget="0.1s"), Silent())
    assert answer.result.verdict.decision is Decision.INCONCLUSIVE
    assert "no other setting was tried" in answer.profile_path.read_text()


def test_a_study_of_something_else_is_not_mixed_in(request_for):
    pipeline.tune(request_for(EAGER, trials=0, budget="0.1s"), Silent())
    with pytest.raises(InputError, match="samples 1, now it is 2"):
        pipeline.tune(request_for(EAGER, samples=2), Silent())


def test_unwritable_output_is_found_before_anything_starts(request_for, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        pipeline.tune(request_for(EAGER, output=tmp_path / "file" / "p.yaml"), Silent())
    assert not (tmp_path / "runs").exists()


def test_a_space_of_refused_candidates_is_told_before_anything_starts(request_for, monkeypatch, tmp_path):
    def resolve(self, arguments, env):
        answer = {"ok": True, "resolved": {"fingerprint": "", "max_num_seqs": 256, "max_num_batched_tokens": 8192}}
        return {"ok": False, "error": "no such value"} if "--enforce-eager" in arguments else answer

    monkeypatch.setattr(FakeResolution, "resolve", resolve)
    with pytest.raises(InputError, match=r"nothing to try beside the default: 1 combinations dropped.*no such value"):
        pipeline.tune(request_for(EAGER), Silent())
    assert not list(tmp_path.glob("runs/*/launches"))


def test_a_full_disk_is_told_and_the_study_goes_on(request_for, monkeypatch):
    real, calls = pipeline.Study.append, []

    def append(self, trial):
        calls.append(trial)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, trial)

    monkeypatch.setattr(setup.Study, "append", append)
    with pytest.raises(EnvironmentMismatch, match=r"No space left on device.*runs"):
        pipeline.tune(request_for(EAGER), Silent())
    assert children() == []
    answer = pipeline.tune(request_for(EAGER), Silent())
    assert [trial.phase for trial in answer.result.trials] == ["baseline", "search", *["confirm"] * 3]


def test_a_finished_study_goes_on_with_a_larger_budget_only(request_for):
    space = "settings: {FAKE_TOK_S: {values: [default, 300, 1000]}}"
    first = pipeline.tune(request_for(space, trials=1), Silent()).result
    assert [trial.phase for trial in first.trials] == ["baseline", "search", *["confirm"] * 6, "soak", "restart"]
    again = pipeline.tune(request_for(space, trials=1), Silent()).result
    assert again.trials == first.trials
    more = pipeline.tune(request_for(space, trials=2), Silent()).result
    # The new challenger has rounds of its own, with new launches of the default.
    assert [trial.phase for trial in more.trials[10:]] == ["search", *["confirm"] * 6, "soak", "restart"]
    assert {trial.round for trial in more.trials[11:17]} == {3, 4, 5}
    assert more.tuned_command.env["FAKE_TOK_S"] == "1000" and more.verdict.launches == 3


@pytest.mark.parametrize("name", ["..", "../x", "a b/c"])
def test_a_study_stays_in_its_folder(request_for, name, tmp_path):
    folder = pipeline.tune(request_for(EAGER, trials=0, budget="0.1s", study=name), Silent()).study_folder
    assert folder.resolve().parent == (tmp_path / "runs").resolve()


def test_ctrl_c_while_inspecting_is_told_as_such(request_for, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "inspect_all", stopped)
    with pytest.raises(Interrupted, match="no server is running") as caught:
        pipeline.tune(request_for(EAGER), Silent())
    assert caught.value.exit_code == 130


def test_a_baseline_that_cannot_be_measured_is_not_blamed_on_the_server(request_for, monkeypatch, tmp_path):
    monkeypatch.setattr(FakeClient, "sample", lambda *_: sample(0, 100.0, problems=["the client was starved"]))
    notes = []
    monkeypatch.setattr(Silent, "note", lambda _, text: notes.append(text))
    with pytest.raises(LaunchesFailed, match="invalid_measurement: the client was starved") as caught:
        pipeline.tune(request_for(EAGER), Silent())
    assert caught.value.hint.startswith("is this machine busy") and len(caught.value.hint.splitlines()) == 2
    assert notes[-1].startswith("time: ") and "own overhead" in notes[-1]  # where it went is told of a tune that fails, too
    (times,) = (tmp_path / "runs").glob("*/time.jsonl")
    assert len(times.read_text().splitlines()) == 1
