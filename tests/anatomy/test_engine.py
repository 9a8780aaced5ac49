"""The command against the installed CPU build: one engine in a process of its own, and modes that come to the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.anatomy import run as running
from advisor.anatomy.modes import parse_modes
from advisor.stepping.ahead import Ahead


@pytest.mark.engine
def test_a_processor_says_what_applies(engine_python, tiny_model, tmp_path):
    output = tmp_path / "anatomy.json"
    words = [
        sys.executable, "-m", "advisor", "anatomy", "--model", str(tiny_model), "--gpu", "cpu", "--modes", "none,full",
        "--batch-sizes", "1,4", "--context", "128", "--steps", "20", "--engine-python", engine_python,
        "--env", "VLLM_CPU_KVCACHE_SPACE=1", "--serve-args", "--load-format dummy --max-model-len 512",
        "--output", str(output),
    ]  # fmt: skip
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=400, cwd=tmp_path, env=place)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(output.read_text())
    plain, full = document["modes"]["none"], document["modes"]["full"]
    assert (plain["status"], plain["reason"]) == ("measured", None), plain
    assert [row["batch"] for row in plain["decode"]] == [1, 4]
    for row in plain["decode"]:
        assert 0 < row["step_low_ms"] <= row["step_ms"] <= row["step_high_ms"] < 5000
        assert row["context_tokens"] == pytest.approx(128, abs=8)
        assert (row["gpu_ms"], row["launches"], row["reason"]) == (None, None, "a processor: no kernels are launched")
        assert row["outer_operators"] >= 2 * 4  # two layers of several operators each
        assert row["operators"] > row["outer_operators"]
        assert 0 < row["operators_ms"] <= row["traced_ms"]
        assert 0 < row["floor_ms"] < row["step_ms"]
    assert [row["tokens"] for row in plain["prefill"]] == [128]
    assert plain["prefill"][0]["chunks"] == 1
    # Of the model by hand: 10,240 x 128 shared embedding, two layers of attention (4 heads and 2 KV heads of 32) and MLP of 256.
    layer = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256 + 2 * 128
    parameters = 10240 * 128 + 2 * layer + 128
    weights = plain["loaded"]["weights"]
    assert plain["loaded"]["parameters"] == parameters
    assert (weights["dense_bytes"], weights["embedding_bytes"]) == (2 * parameters, 0)
    assert sum(item["layers"] * item["bytes_per_token"] for item in plain["loaded"]["kv"]) == 2 * 2 * 2 * 32 * 2
    assert plain["start"]["start_s"] > plain["start"]["imports_s"] > 1
    assert document["bandwidth"]["gb_s"] > 0.1
    assert (full["status"], full["same_as"]) == ("skipped", "none")
    assert "no CUDA graphs here" in ended.stdout
    drawn = output.with_suffix(".svg")
    assert ended.stdout.splitlines()[-2:] == [str(output), str(drawn)]
    assert "a processor has no GPU time" in drawn.read_text()  # beside its outlines stands each text as a comment
    assert "vLLM runs the same as for 'no optimisation' here" in ended.stderr


@pytest.mark.engine
def test_a_real_engine_starts_in_the_process_that_imported_ahead(engine_python, tiny_model, tmp_path, monkeypatch):
    """As on a GPU, which alone begins processes ahead: the imports, the wait for the inspection, then the start."""
    monkeypatch.chdir(tmp_path)
    begun, made = Ahead.__init__, []

    def on_a_gpu(self, make, wanted):
        begun(self, lambda name: made.append(name) or make(name), wanted=True)

    monkeypatch.setattr(Ahead, "__init__", on_a_gpu)
    wish = running.Wish(
        str(tiny_model), "cpu", ("--load-format", "dummy", "--max-model-len", "256"), {"VLLM_CPU_KVCACHE_SPACE": "1"},
        parse_modes("none"), (1,), 128, 10, engine_python, tmp_path / "found.json",
    )  # fmt: skip
    began = time.monotonic()
    document, _ = running.anatomy(wish, lambda line: None)
    took_s = time.monotonic() - began
    mode = document["modes"]["none"]
    assert (mode["status"], mode["reason"], made) == ("measured", None, ["none"])
    assert 1 < mode["start"]["imports_s"] < mode["start"]["start_s"] < took_s
    assert mode["decode"][0]["step_ms"] > 0


TIED = """
import importlib.util, json, sys
import torch
spec = importlib.util.spec_from_file_location("anatomy", sys.argv[1])
anatomy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(anatomy)

class VocabParallelEmbedding(torch.nn.Embedding):
    pass

class Qwen3ForCausalLM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = VocabParallelEmbedding(100, 8)
        self.model.norm = torch.nn.LayerNorm(8)
        self.lm_head = self.model.embed_tokens

print(json.dumps(anatomy.weights(Qwen3ForCausalLM(), object())))
"""


@pytest.mark.engine
def test_an_output_layer_that_is_the_embedding_module_is_read_whole(engine_python):
    """vLLM's Qwen3 has one module under two names where weights are tied, and torch tells of it once unless asked for both."""
    script = Path(__file__).parents[2] / "advisor" / "target" / "anatomy.py"
    ended = subprocess.run([engine_python, "-c", TIED, str(script)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["parameters"], found["dense_bytes"], found["embedding_bytes"]) == (816, 4 * 816, 0)


@pytest.mark.gpu
@pytest.mark.engine
def test_on_a_gpu_a_graph_is_few_launches_of_many_kernels(engine_python, tiny_model, tmp_path):
    output = tmp_path / "anatomy.json"
    words = [
        sys.executable, "-m", "advisor", "anatomy", "--model", str(tiny_model), "--modes", "none,full", "--batch-sizes", "1,4",
        "--context", "128", "--steps", "20", "--engine-python", engine_python,
        "--serve-args", "--load-format dummy --max-model-len 512", "--output", str(output),
    ]  # fmt: skip
    place = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=tmp_path, env=place)
    assert ended.returncode == 0, ended.stderr
    modes = json.loads(output.read_text())["modes"]
    for plain, full in zip(modes["none"]["decode"], modes["full"]["decode"], strict=True):
        for row in (plain, full):
            assert row["reason"] is None
            assert 0 < row["gpu_ms"] < row["traced_ms"]
            assert 0 < row["host_ms"] <= row["serial_ms"]
            assert row["floor_ms"] > 0
        assert plain["graph_launches"] == 0
        assert full["graph_launches"] >= 1
        # Two layers of five or more kernels are in the graph; preparing the inputs and sampling are not, in any mode.
        assert full["launches"] <= plain["launches"] - 10
        assert full["kernels"] > plain["kernels"] / 2  # the profiler sees into graphs
        assert full["step_ms"] < plain["step_ms"]
