"""What a real server says that it runs, through the whole runner: log, /metrics page, counted steps, notes."""

from __future__ import annotations

import time

import pytest

from advisor.inspection.engine import describe
from advisor.inspection.gpu import cpu_facts
from advisor.launch.server import LOG
from advisor.measure.workload import load_workload
from advisor.records import Candidate, Facts, GraphSteps, Outcome
from advisor.runner.base import Job
from advisor.runner.real import RealRunner
from tests.runner.fakes import QuietClient, quiet_machine

ARGUMENTS = (
    "--load-format", "dummy", "--enforce-eager", "--block-size", "64", "--kv-cache-dtype", "fp8", "--cudagraph-metrics",
)  # fmt: skip
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOG_STATS_INTERVAL": "1"}


class PatientClient(QuietClient):
    """Waits until the server has logged its table of the steps that made it ready: it does once a second."""

    def sample(self, server_url, served_name, workload, seed, folder):
        deadline = time.monotonic() + 60
        while "Unpadded Tokens" not in (folder / LOG).read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        return super().sample(server_url, served_name, workload, seed, folder)


@pytest.mark.engine
def test_a_real_server_is_judged_by_what_it_says(engine_python, tiny_model, tmp_path):
    gpu = cpu_facts()
    engine, model = describe(engine_python, str(tiny_model), ARGUMENTS, gpu, ENV)
    facts, load = Facts(gpu, engine, model), load_workload("tiny")
    runner = RealRunner(facts, load, ARGUMENTS, ENV, tmp_path, PatientClient(), judge_machine=quiet_machine)
    asked = Candidate({"attention_backend": "FLASH_ATTN", "--no-enable-prefix-caching": True})
    done = runner.run(Job(1, "search", asked, (0,), resolved={"block_size": 64, "attention_backend": "FLASH_ATTN"}))
    active = done.active
    assert (done.outcome, done.reason) == (
        Outcome.NOT_AS_REQUESTED,
        "attention backend FLASH_ATTN was asked for, CPU_ATTN runs",
    )
    assert done.credited_to.settings["attention_backend"] == "CPU_ATTN"
    assert (active.block_size, active.kv_cache_dtype, active.prefix_caching) == (64, "fp8", False)
    assert active.kv_cache_blocks * 64 == active.kv_cache_tokens and active.model_runner == "V1"
    assert (tmp_path / done.folder / "metrics.prom").stat().st_size > 10_000
    assert set(active.graph_steps) >= {GraphSteps(1, 1, "NONE", active.graph_steps[0].count)}
    assert active.decode_modes == {"NONE": 1}
    assert "attention backend: resolved FLASH_ATTN, active CPU_ATTN" in done.notes
