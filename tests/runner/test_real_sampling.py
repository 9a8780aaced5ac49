"""Two real launches on the processor: warm-up, plan and samples as recorded, with one client process and with two."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from advisor.measure.client import BenchClient
from advisor.measure.length import least_s, wanted_s
from advisor.measure.workload import load_workload
from advisor.records import Candidate, EngineFacts, Facts, GpuFacts, Invalid, ModelFacts, SamplingPlan, Trial
from advisor.runner.base import Earlier, Job
from advisor.runner.real import RealRunner

pytestmark = pytest.mark.engine
SERVE_ARGS = ("--load-format", "dummy", "--enforce-eager", "--max-model-len", "512")
SEEDS = (0, 1)


def facts(python: str, model: Path) -> Facts:
    return Facts(
        GpuFacts("cpu", "processor", "cpu", 0, 0.0),
        EngineFacts(python, "3.11", "0.32.0", "2.13.0", "cpu"),
        ModelFacts(str(model), "LlamaForCausalLM", "0" * 16, 2, 128, 2, 2, 64, 10000, 2048),
    )


@pytest.fixture(scope="module")
def launches(engine_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Trial, Path]:
    """A baseline that makes the plan with one client process, and a launch of the same with two."""
    folder = tmp_path_factory.mktemp("study")
    env = {"VLLM_CPU_KVCACHE_SPACE": "1"}
    workload = load_workload("tiny", output_tokens=64)
    with BenchClient(engine_python, str(tiny_model), timeout_s=200, root=folder) as client:

        def run(number: int, phase: str, plan: SamplingPlan | None) -> Trial:
            made = RealRunner(
                facts(engine_python, tiny_model), workload, SERVE_ARGS, env, folder, client, earlier=Earlier(plan),
                judge_machine=lambda *_: (),
            )  # fmt: skip
            return made.run(Job(number, phase, Candidate(), SEEDS))

        alone = run(0, "baseline", None)
        assert alone.plan is not None, alone.reason
        return alone, run(1, "search", dataclasses.replace(alone.plan, client_processes=2)), folder


def harmless(trial: Trial) -> bool:
    """Valid, but for a client that two busy cores starved: a model this small answers faster than anybody is woken."""
    return all(set(sample.classes) <= {Invalid.CLIENT_BOUND} for sample in trial.samples)


def test_the_baseline_is_warmed_up_and_long_enough(launches):
    alone = launches[0]
    assert harmless(alone), alone.reason
    assert alone.warm_up.waves >= 2 and alone.warm_up.prompts == 8 * alone.warm_up.waves
    workload = load_workload("tiny")
    assert all(sample.duration_s > least_s(workload) for sample in alone.samples)
    assert alone.samples[0].requests == alone.plan.num_prompts >= 48
    assert alone.plan.num_prompts == 48 or f"to last {wanted_s(workload):.1f} s" in alone.plan.why
    assert all(0 < sample.client.cpu_share < 1 and sample.client.processes == 1 for sample in alone.samples)
    assert {"mean", "p99", "max"} == set(alone.samples[0].client.send_lag_ms) == set(alone.samples[0].client.loop_lag_ms)


def test_two_processes_send_the_same_prompts_once_and_measure_the_same_server(launches):
    alone, together, folder = launches
    assert harmless(together), together.reason
    assert [sample.client.processes for sample in together.samples] == [2, 2]
    for one, two in zip(alone.samples, together.samples, strict=True):
        if one.seed == two.seed:  # neither was repeated
            assert one.prompts == two.prompts
        assert (one.requests, one.failed, one.output_tokens) == (two.requests, two.failed, two.output_tokens)
    rates = [sum(sample.output_tok_s for sample in trial.samples) for trial in (alone, together)]
    assert 0.5 < rates[1] / rates[0] < 2.0
    raw = json.loads((folder / together.samples[0].raw).read_text())
    assert len(raw["errors"]) == together.plan.num_prompts and len(raw["advisor_client"]["processes"]) == 2
    assert not list(folder.rglob("*.part*"))
