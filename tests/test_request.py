"""Words of the command line, and what each mistake is answered with: exit code 2, before anything starts."""

import pytest

from advisor.errors import InputError
from advisor.request import parse_env, request_from_words
from advisor.units import duration, number, parse_duration_s, percent

WORDS = {
    "model": "m", "gpu": "auto", "workload": "tiny", "overrides": {}, "budget": "30m", "trials": None, "confirm_launches": 3,
    "serve_args": "", "env": [], "space": None, "objective": "output_tok_s", "engine_python": "py",
}  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), (" 2H ", 7200)])
def test_durations(text, seconds):
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["-5m", "0", "0s", "", "5 minutes", "1d", "nan", "inf", "5m3", "30"])
def test_bad_durations(text):
    with pytest.raises(InputError, match="--budget"):
        parse_duration_s(text)


def test_units():
    assert [duration(value) for value in (7.25, 75.2, 59.6, 5400, 7199)] == ["7.2s", "1m15s", "1m00s", "1h30m", "1h59m"]
    assert percent(1.037) == "+3.7%" and percent(0.9) == "-10.0%"
    assert [number(value) for value in (27957.3, 192.94, 4.893)] == ["27,957", "192.9", "4.89"]


def test_a_whole_request():
    request = request_from_words(**{**WORDS, "serve_args": "--max-num-seqs 8", "env": ["A=b=c"], "space": "cpu"})
    assert request.serve_args == ("--max-num-seqs", "8") and request.serve_env == {"A": "b=c"}
    assert request.budget.total_s == 1800 and request.space.name == "cpu"


def test_a_quality_command_is_split_into_words_and_found():
    request = request_from_words(**{**WORDS, "quality_command": "sh -c 'exit 0'"})
    assert request.quality_command[0].endswith("/sh") and request.quality_command[1:] == ("-c", "exit 0")
    assert request_from_words(**WORDS).quality_command == ()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"budget": "-1m"}, "--budget '-1m'"),
        ({"workload": "chatty"}, "chatty"),
        ({"gpu": "H1000"}, "H1000"),
        ({"space": "nope.yaml"}, "nope.yaml"),
        ({"objective": "speed"}, "--objective 'speed'"),
        ({"objective": "ttft_ms"}, "--objective 'ttft_ms'"),
        ({"slo": "ttft_p99<500"}, "--slo term 'ttft_p99<500'"),
        ({"find_load": "rate"}, "--find-load rate needs --slo"),
        ({"find_load": "concurrency", "slo": "ttft<1s", "overrides": {"rate": 2.0}}, "which has a rate"),
        ({"env": ["A"]}, "--env 'A'"),
        ({"env": ["1A=2"]}, "--env '1A=2'"),
        ({"serve_args": "--port 80 --host x"}, "--port, --host"),
        ({"serve_args": "model"}, "'model' at word 1"),
        ({"overrides": {"concurrency": 0}}, "concurrency"),
        ({"quality_command": "./not-there.sh 3"}, "--quality-command: ./not-there.sh"),
        ({"quality_command": ""}, "--quality-command is empty"),
    ],
)
def test_mistakes(change, part):
    with pytest.raises(InputError) as caught:
        request_from_words(**{**WORDS, **change})
    assert part in caught.value.problem and "\n" not in caught.value.problem
    assert caught.value.exit_code == 2


def test_the_objective_is_that_of_the_words():
    request = request_from_words(**{**WORDS, "objective": None, "slo": "ttft_p99<500ms"})
    assert request.objective.metric == "goodput" and request.objective.slo[0].limit_ms == 500


def test_environment():
    assert parse_env(["A=1", "A=2"]) == {"A": "2"}
