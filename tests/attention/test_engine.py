"""The command against the installed CPU build: its one backend, measured in all phases, twice, and gone on with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = [
    "--gpu", "cpu", "--steps", "8", "--chunk", "64", "--contexts", "64,128", "--env", "VLLM_CPU_KVCACHE_SPACE=1",
    "--serve-args", "--load-format dummy --max-model-len 512 --enforce-eager",
]  # fmt: skip


@pytest.mark.engine
def test_a_processor_has_one_backend_which_is_measured_all_the_same(engine_python, tiny_model, tmp_path):
    def run(batches, *more):
        words = [
            "--model",
            str(tiny_model),
            "--batch-sizes",
            batches,
            "--output",
            "found.json",
            "--engine-python",
            engine_python,
        ]
        place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-m", "advisor", "attention", *words, *WORDS, *more]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=tmp_path, env=place)
        assert ended.returncode == 0, ended.stderr
        return json.loads((tmp_path / "found.json").read_text()), ended

    document, ended = run("1,4", "--plot", "map.png")
    assert document["default"] == "CPU_ATTN"
    assert document["words"][0].startswith("only CPU_ATTN is legal here")
    assert {"backend": "FLASH_ATTN", "reason": "vLLM would silently run CPU_ATTN instead"} in document["refused"]
    (backend,) = document["backends"].values()
    assert (backend["status"], backend["reason"]) == ("measured", None), backend
    assert backend["active"] == {"backends": {"CPU_ATTN": 2}, "flash_attention_version": None, "source": "engine"}
    rows = {(row["phase"], row["batch"], row["context"]): row for row in backend["rows"]}
    assert len(rows) == 12
    for (phase, _, context), row in rows.items():
        assert row["reason"] is None, row
        assert 0 < row["step_low_ms"] <= row["step_ms"] <= row["step_high_ms"] <= row["slowest_ms"] < 5000
        assert row["again_ms"] > 0
        assert "gpu_ms" not in row
        assert row["context_tokens"] == (context if phase == "prefill" else pytest.approx(context, abs=6))
    assert "decode step, ms" in ended.stdout
    assert "GPU time does not apply: this is a processor" in ended.stdout
    assert "GPU time of" not in ended.stdout
    assert (tmp_path / "map.png").stat().st_size > 5000

    document, ended = run("1,4,300")  # nothing new but what does not fit
    assert "CPU_ATTN: in found.json already" in ended.stderr
    assert {row["batch"] for row in document["left_out"]} == {300}
    assert [row["step_ms"] for row in document["backends"]["CPU_ATTN"]["rows"]] == [
        row["step_ms"] for row in backend["rows"]
    ]


@pytest.mark.engine
def test_steps_of_an_asynchronous_core_are_what_they_are_meant_to_be(engine_python, tiny_model):
    """As on CUDA: a call launches a step and takes back the one before. vLLM's own core and scheduler, no model."""
    script, folder = Path(__file__).with_name("pipelined_core.py"), Path(__file__).parents[2] / "advisor" / "target"
    ended = subprocess.run(
        [engine_python, str(script), str(folder), str(tiny_model)], capture_output=True, text=True, timeout=300
    )
    started, *found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert started["answer"]["pipelined"] is True, ended.stderr[-2000:]
    assert len(found) == 12, ended.stderr[-2000:]
    assert all(one["empty"] for one in found), found
    *answered, late = found
    for one in answered:
        request, answer = one["request"], one["answer"]
        assert answer["ok"], one
        if request["do"] == "decode" and "serial" in request:
            assert 0 < answer["host_ms"]["median"] <= answer["serial_ms"]["median"]
        if "prefill" not in (request["do"], request.get("phase")):
            assert answer["context_tokens"] == pytest.approx(request["context"], abs=15)
        if request["do"] == "trace":  # through the real profiler, which finds no kernels of a stand-in
            assert answer["gpu_ms"] is None
            assert answer["gpu_reason"].startswith("the profiler saw no kernels")
            assert answer["steps"] == request["steps"]
    assert found[2]["answer"]["chunks"] == 1  # one step, though the core was called twice for it
    assert late["answer"]["error_type"] == "Late"
