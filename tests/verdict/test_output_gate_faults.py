"""Every way of being fast but wrong that the stand-in server knows is caught by the gate, and sound servers pass."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from advisor.launch.process import Grace
from advisor.launch.server import Server
from advisor.measure.answers import Answers
from advisor.measure.probe import ask
from advisor.records import Command, GpuFacts, ModelFacts
from advisor.verdict.output_gate import compare, judge_baseline

FAKES = Path(__file__).resolve().parents[1] / "fakes"
MODEL = ModelFacts("some/model", "LlamaForCausalLM", "0" * 16, 2, 64, 2, 1, 32, 48, 4096)
# fault -> words of the reason
WRONG = {
    "repeat_token": "one token repeated",
    "loop_text": "a loop of 3 tokens",
    "empty_text": "an empty text",
    "broken_utf8": "not valid UTF-8",
    "nan_logprobs": "no finite number",
    "null_logprobs": "no finite number",
    "nan_500": "HTTP 500: Out of range float values",
    "positive_logprobs": "a log-probability above 0",
    "short_answers": "24 tokens instead of 48",
    "another_token": "another token than the only one allowed",
    "other_weights": "log-probabilities while decoding",
    "stale_kv": "log-probabilities while decoding",
    "wrong_positions": "log-probabilities while decoding",
    "wrong_scale": "log-probabilities while decoding",
    "shuffled": "log-probabilities while decoding",
    "shifted": "log-probabilities while decoding",
    "layer_skipped": "log-probabilities while decoding",
    "wrong_together": "log-probabilities while decoding",
    "wrong_long": "log-probabilities while decoding",
    "wrong_mixed": "log-probabilities while decoding",
    "wrong_prefill": "log-probabilities of the prompts",
}

TOGETHER = ("wrong_together", "wrong_mixed")  # need requests that meet: answers of a millisecond do not on a busy machine


def answers_of(folder: Path, fault: str = "", rounding: float = 0.01) -> Answers:
    argv = (sys.executable, str(FAKES / "fake_engine.py"), "serve", "some/model")
    scale = "0.05" if fault in TOGETHER else "0.001"
    env = {"FAKE_FAULT": fault, "FAKE_TIME_SCALE": scale, "FAKE_ROUNDING": str(rounding)}
    gpu, grace = GpuFacts("cpu", "cpu", "cpu", 1, 16.0), Grace(leader_s=0.3, group_s=0.2)
    with Server(Command(argv, env), "advisor-gate", folder, gpu, grace=grace) as server:
        return ask(server.base_url, server.served_name, MODEL)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> list[Answers]:
    folder = tmp_path_factory.mktemp("baseline")
    return [answers_of(folder / str(number)) for number in range(2)]


def test_all_faults_of_the_stand_in_are_tested():
    sys.path.insert(0, str(FAKES))
    try:
        import fake_text
    finally:
        sys.path.remove(str(FAKES))
    assert set(WRONG) == set(fake_text.FAULTS)


def test_a_sound_baseline_passes_its_own_gate(baseline):
    own = judge_baseline(baseline)
    assert own.passed, own.reason
    assert own.notes == () and 0 < own.noise["decode"] < 0.05


@pytest.mark.parametrize("rounding", [0.0, 0.01, 0.05])
def test_other_rounding_passes(baseline, tmp_path, rounding):
    result = compare(baseline, answers_of(tmp_path, rounding=rounding))
    assert result.passed, result.reason
    assert result.baselines == 2 and result.agreement is not None


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_output_is_caught_and_named(baseline, tmp_path, fault):
    result = compare(baseline, answers_of(tmp_path, fault))
    assert result.passed is False
    assert WRONG[fault] in result.reason


@pytest.mark.parametrize("fault", ["repeat_token", "nan_logprobs", "short_answers", "wrong_together"])
def test_a_baseline_that_is_wrong_itself_is_named_and_judges_nobody(baseline, tmp_path, fault):
    bad = answers_of(tmp_path, fault)
    own = judge_baseline([bad])
    assert own.passed is False and own.reason.startswith("the baseline's own output is")
    result = compare([bad], baseline[0])
    assert result.passed is None and own.reason in result.reason


def test_answers_are_waited_for_no_longer_than_the_launch_has_time(tmp_path):
    argv = (sys.executable, str(FAKES / "fake_engine.py"), "serve", "some/model")
    gpu, grace = GpuFacts("cpu", "cpu", "cpu", 1, 16.0), Grace(leader_s=0.3, group_s=0.2)
    command = Command(argv, {"FAKE_FAULT": "stalls_after_n:3", "FAKE_TIME_SCALE": "0.001"})
    with Server(command, "advisor-gate", tmp_path, gpu, grace=grace) as server:
        begun = time.monotonic()
        answers = ask(server.base_url, server.served_name, MODEL, ends_at=begun + 1.0)
        assert time.monotonic() - begun < 30.0  # a request alone may take 180 s
    assert [reply.status for reply in answers.replies] == [200, 200, 0]
    assert answers.replies[-1].problem == "no answer: timed out"
