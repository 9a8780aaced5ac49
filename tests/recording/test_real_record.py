"""A real recording: the command as a person uses it, real vLLM on the processor, cut and gone on with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from advisor.recording.grid import read_grid
from advisor.records import Outcome
from benchmarks.grids import load
from tests.conftest import ROOT

pytestmark = pytest.mark.engine

SPACE = "schema: advisor.space/1\nname: s\nsettings:\n  max_num_seqs: {values: [default, 1, 2]}\n"


def command(engine_python):
    return [
        sys.executable, "-m", "advisor", "record", "--model", "demo", "--gpu", "cpu", "--workload", "tiny", "--samples", "1",
        "--serve-args", "--load-format dummy --max-model-len 512 --enforce-eager", "--env", "VLLM_CPU_KVCACHE_SPACE=1",
        "--space", "space.yaml", "--output", "grid.jsonl", "--engine-python", engine_python,
    ]  # fmt: skip


def begins_to_start(folder, launches):
    """Whether the server of that launch writes its log; it is seconds from being ready then."""
    logs = [log for log in folder.glob("runs/*/launches/*/server.log") if log.stat().st_size]
    return len(logs) >= launches


def test_a_recording_that_is_ended_in_a_launch_goes_on_where_it_stopped(tmp_path, engine_python):
    script = ROOT / "advisor" / "target" / "demo_model.py"
    subprocess.run([engine_python, str(script), str(tmp_path / "demo")], check=True, capture_output=True)
    (tmp_path / "space.yaml").write_text(SPACE)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = command(engine_python)
    path = tmp_path / "grid.jsonl"
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as first:
        begun = time.monotonic()
        while not (path.exists() and '"event":"trial"' in path.read_text()):
            assert first.poll() is None and time.monotonic() - begun < 600, first.stderr.read()
            time.sleep(0.5)
        while not begins_to_start(tmp_path, 2):
            assert first.poll() is None and time.monotonic() - begun < 600, first.stderr.read()
            time.sleep(0.1)
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=120) == 130, first.stderr.read()
    assert not [item for item in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(item.info["cmdline"] or [])]

    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 configurations are in grid.jsonl: everything is recorded" in done.stdout
    grid = read_grid(path)
    assert [item.outcome for item in grid.trials] == [Outcome.OK, Outcome.INTERRUPTED, Outcome.OK, Outcome.OK]
    for trial in grid.trials:
        if trial.ok:
            (sample,) = trial.samples
            assert len(sample.slices) == 4 and sample.slices[-1].duration_s < sample.duration_s
            assert None not in (trial.start_s, trial.warmup_s, trial.measure_s, trial.stop_s, trial.start_up)
    # A sample that the machine disturbed was taken again with another seed: the prompts go by the seed, one set for each.
    sent = {(trial.samples[0].seed, trial.samples[0].prompts) for trial in grid.trials if trial.ok}
    assert len(sent) == len({seed for seed, _ in sent}) == len({prompts for _, prompts in sent})
    case = load(path)
    assert case.share('{"max_num_seqs":1}') < 0.8
    assert str(tmp_path) not in path.read_text()
