"""resolve.py: canonical values without vLLM; one long-lived process against the installed vLLM in the engine tests."""

from __future__ import annotations

import enum
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from advisor.target import resolve
from advisor.target_process import TargetProcess, scrubbed_environment


class Mode(enum.IntEnum):
    NONE = 0
    FULL = 2


@dataclass
class Inner:
    mode: Mode = Mode.FULL
    sizes: list = field(default_factory=lambda: [1, 2])
    local_cache_dir: str = "/a"


@dataclass
class Config:
    inner: Inner = field(default_factory=Inner)
    instance_id: str = "random"
    names: set = field(default_factory=lambda: {"b", "a"})
    counted: Counter = field(default_factory=Counter)
    where: Path = Path("/x")
    kind: type = Path
    thing: object = field(default_factory=object)


def test_plain_values_are_the_same_in_every_process():
    assert resolve.plain(Config()) == {
        "inner": {"mode": "FULL", "sizes": [1, 2]},
        "names": ['"a"', '"b"'],
        "counted": {},
        "where": "/x",
        "kind": "pathlib.Path",
        "thing": "object",
    }


def test_fingerprints_differ_where_something_else_would_run():
    same = resolve.fingerprint(Config(), {})
    assert resolve.fingerprint(Config(instance_id="other", inner=Inner(local_cache_dir="/b")), {}) == same
    assert resolve.fingerprint(Config(inner=Inner(Mode.NONE)), {}) != same
    assert resolve.fingerprint(Config(), {"VLLM_CPU_OMP_THREADS_BIND": "0-1"}) != same


def test_a_cycle_ends():
    loop = Inner()
    loop.sizes = [loop]
    assert resolve.fingerprint(loop, {})


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("usage: x [-h]\nx: error: unrecognized arguments: --foo\n", "unrecognized arguments: --foo"),
        ("", "the command line was refused"),
    ],
)
def test_the_parsers_complaint(said, complaint):
    assert resolve.parser_complaint(said) == complaint


def test_an_environment_is_for_one_request(monkeypatch):
    monkeypatch.setenv("VLLM_KEPT", "1")
    base, seen = dict(os.environ), []

    def engine_config(argv):
        seen.append((os.environ.get("VLLM_A"), os.environ.get("VLLM_KEPT"), os.environ.get("VLLM_SET_WITHIN")))
        os.environ["VLLM_SET_WITHIN"] = "1"
        raise SystemExit(2)

    monkeypatch.setattr(resolve, "engine_config", engine_config)
    try:
        resolve.respond({"argv": [], "env": {"VLLM_A": 5}}, base)
        answer = resolve.respond({"argv": [], "env": {}}, base)
    finally:
        os.environ.clear()
        os.environ.update(base)
    assert seen == [("5", "1", None), (None, "1", None)]
    assert (answer["ok"], answer["error_type"]) == (False, "ArgumentError")


# ---------------------------------------------------------------- the installed vLLM


@pytest.fixture(scope="module")
def ask(engine_python, tiny_model):
    """ask(*words, env) of one long-lived process."""
    env = scrubbed_environment(os.environ, {"VLLM_CPU_KVCACHE_SPACE": "1"})
    with TargetProcess(engine_python, "resolve", env) as process:

        def ask(*words, **variables):
            argv = [str(tiny_model), "--load-format", "dummy", *words]
            return process.request({"argv": argv, "env": variables}, 300)

        yield ask


@pytest.mark.engine
def test_the_installed_vllm_resolves(ask):
    found = ask()["resolved"]
    assert found["max_model_len"] == 4096
    assert found["dtype"] == "bfloat16"
    assert found["enforce_eager"] is False
    assert isinstance(found["cudagraph_capture_sizes"], list)
    assert ask("--max-num-seqs", "8")["resolved"]["max_num_seqs"] == 8


@pytest.mark.engine
def test_equal_configurations_have_equal_fingerprints(ask):
    def of(*words, **variables):
        return ask(*words, **variables)["resolved"]["fingerprint"]

    default = of()
    assert of("--served-model-name", "x", "--port", "1234") == default
    assert of("-O2") == default
    assert of("--enforce-eager") != default
    assert of(VLLM_CPU_OMP_THREADS_BIND="0-1") != default
    assert of() == default


@pytest.mark.engine
def test_a_word_for_a_set_of_defaults_equals_the_set(ask):
    default, doubled = ask()["resolved"], ask("--performance-mode", "throughput")["resolved"]
    assert doubled["max_num_seqs"] == 2 * default["max_num_seqs"]
    same = ask("--max-num-seqs", doubled["max_num_seqs"], "--max-num-batched-tokens", doubled["max_num_batched_tokens"])
    assert same["resolved"]["fingerprint"] == doubled["fingerprint"] != default["fingerprint"]
    assert default["tensor_parallel_size"] == 1


@pytest.mark.engine
@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (("--nonsense",), "ArgumentError", "unrecognized arguments: --nonsense"),
        (("--max-num-seqs", "abc"), "ArgumentError", "--max-num-seqs"),
        (("--max-model-len", "9999999"), "ValidationError", "9999999"),
    ],
)
def test_a_refusal_is_an_answer(ask, words, kind, said):
    answer = ask(*words)
    assert (answer["ok"], answer["error_type"]) == (False, kind)
    assert said in answer["error"]
    assert "\n" not in answer["error"]
    assert ask()["ok"]


@pytest.mark.engine
def test_later_answers_are_quick(ask):
    ask()
    assert min(ask("--max-num-seqs", number)["seconds"] for number in ("4", "5", "6")) < 1.0
