"""vLLM's real client in two processes against the fake engine, whose speed is fixed: the same load, the same figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from advisor.launch.server import Server
from advisor.measure.client import BenchClient
from advisor.records import Command, GpuFacts, Invalid, Sample, Workload
from tests.conftest import ROOT

pytestmark = pytest.mark.engine
LOAD = Workload("load", input_tokens=64, output_tokens=32, num_prompts=96, concurrency=16)
SPEED = "50"  # tokens a second of each request: slow enough that a busy machine's delays are small against it


def test_two_processes_send_one_load_and_measure_what_one_measures(engine_python: str, tiny_model: Path, tmp_path: Path):
    command = Command((sys.executable, str(ROOT / "tests" / "fakes" / "fake_engine.py"), "serve", "m"), {"FAKE_SPEED": SPEED})
    with BenchClient(engine_python, str(tiny_model), timeout_s=280, root=tmp_path) as client:
        client.use_processes(2)  # both import while the server starts
        with Server(command, "served", tmp_path / "launch", GpuFacts("cpu", "processor", "cpu", 0, 0.0)) as server:
            client.warm_up(server.base_url, "served", LOAD)  # waits for both imports
            for seed in (0, 10, 20):  # others may hold up the machine in one of them
                client.use_processes(2)
                two = client.sample(server.base_url, "served", LOAD, seed, tmp_path / f"two-{seed}")
                client.use_processes(1)
                one = client.sample(server.base_url, "served", LOAD, seed, tmp_path / "one")
                other = client.sample(server.base_url, "served", LOAD, seed + 1, tmp_path / "one")
                if not (differences := timing(tmp_path, one, two, other)):
                    break
    assert differences == []
    for sample in (one, two, other):
        assert (sample.requests, sample.failed, sample.output_tokens) == (96, 0, 96 * 32)
        assert 0 < sample.client.cpu_share < 0.9 and sample.client.send_lag_ms["mean"] >= 0
    assert (one.client.processes, two.client.processes) == (1, 2)
    assert one.prompts == two.prompts != other.prompts and one.input_tokens == two.input_tokens
    assert [path.name for path in (tmp_path / f"two-{seed}").iterdir()] == [f"bench-seed{seed}.json"]


def timing(folder: Path, one: Sample, two: Sample, other: Sample) -> list[str]:
    """What differs between one process and two, or tells against one of the samples: all that hangs on when things happen."""
    allowed = {Invalid.WRONG_LENGTH, Invalid.CACHED_PROMPTS}  # words are not tokens, and the second of a seed finds the prompts
    found = [str(sample.problems) for sample in (one, two, other) if not set(sample.classes) <= allowed]
    for here, there in ((two.output_tok_s, one.output_tok_s), (two.tpot_ms["p50"], one.tpot_ms["p50"])):
        if here != pytest.approx(there, rel=0.3):
            found.append(f"{here} with two, {there} with one")
    raw = json.loads((folder / two.raw).read_text())
    began = [part["began"] for part in raw["advisor_client"]["processes"]]
    if max(began) - min(began) >= 0.25:
        found.append(f"they began at {began}")
    return found
