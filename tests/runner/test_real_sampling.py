"""Three real launches on the processor: warm-up, plan, slices and samples as recorded, with one client process and with two, and
one that is dropped after its slice."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from advisor.measure.client import BenchClient
from advisor.measure.length import least_s, wanted_s
from advisor.measure.workload import load_workload
from advisor.records import (
    Candidate,
    EngineFacts,
    Facts,
    GpuFacts,
    Invalid,
    ModelFacts,
    Objective,
    Outcome,
    SamplingPlan,
    Trial,
)
from advisor.runner.base import Earlier, Job, Race
from advisor.runner.real import RealRunner
from advisor.search.race_noise import Noise
from advisor.search.racing import SLICE_SEEDS_FROM, race_for, slice_seeds

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
def launches(engine_python: str, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Trial, Trial, Path]:
    """A baseline that makes the plan with one client process, one with two, and one that is far behind."""
    folder = tmp_path_factory.mktemp("study")
    env = {"VLLM_CPU_KVCACHE_SPACE": "1"}
    workload = load_workload("tiny", output_tokens=64)
    with BenchClient(engine_python, str(demo_model), timeout_s=200, root=folder) as client:

        def run(number: int, phase: str, plan: SamplingPlan | None, race: Race | None = None) -> Trial:
            made = RealRunner(
                facts(engine_python, demo_model), workload, SERVE_ARGS, env, folder, client, earlier=Earlier(plan),
                judge_machine=lambda *_: (),
            )  # fmt: skip
            slices = slice_seeds("baseline", [], Objective()) if phase == "baseline" else (SLICE_SEEDS_FROM,)
            job = Job(number, phase, Candidate(), SEEDS, slice_seeds=slices, slice_waves=1, race=race)
            return made.run(job)

        alone = run(0, "baseline", None)
        assert alone.plan is not None, alone.reason
        together = run(1, "search", dataclasses.replace(alone.plan, client_processes=2))
        return alone, together, run(2, "search", alone.plan, lost_race(alone)), folder


def lost_race(baseline: Trial) -> Race | None:
    """Against a launch that is ten times as fast as the baseline, with the noise of a quiet machine, however busy this one is."""
    slices = [dataclasses.replace(item, output_tok_s=10 * item.output_tok_s) for item in baseline.slices]
    race = race_for([dataclasses.replace(baseline, slices=tuple(slices))], Objective(), len(SEEDS))
    return dataclasses.replace(race, noises=(Noise(0.02, 0.02, 20),)) if race else None


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
    alone, together, _, folder = launches
    assert harmless(together), together.reason
    assert [sample.client.processes for sample in together.samples] == [2, 2]
    for one, two in zip(alone.samples, together.samples, strict=True):
        if one.seed == two.seed:  # neither was repeated
            assert one.prompts == two.prompts
        assert (one.requests, one.failed, one.output_tokens) == (two.requests, two.failed, two.output_tokens)
    rates = [max(sample.output_tok_s for sample in trial.samples) for trial in (alone, together)]  # others slow one at a time
    assert 0.5 < rates[1] / rates[0] < 2.0
    raw = json.loads((folder / together.samples[0].raw).read_text())
    assert len(raw["errors"]) == together.plan.num_prompts and len(raw["advisor_client"]["processes"]) == 2
    assert not list(folder.rglob("*.part*"))


def test_slices_are_short_and_valid_and_of_the_same_prompts(launches):
    alone, together, slow, _ = launches
    assert [sample.seed for sample in alone.slices] == [SLICE_SEEDS_FROM + n for n in range(3)]
    first = alone.slices[0]
    assert set(first.classes) <= {Invalid.CLIENT_BOUND} and first.requests == alone.plan.slice_prompts
    assert first.requests <= alone.samples[0].requests / 2 and first.duration_s < alone.samples[0].duration_s
    assert {trial.slices[0].prompts for trial in (alone, together, slow)} == {first.prompts}


def test_a_launch_that_is_far_behind_is_dropped_after_its_slice(launches):
    alone, _, slow, folder = launches
    if not alone.ok or any(sample.problems for sample in (alone.slices[0], *slow.slices)):
        pytest.skip("this machine is too busy for a slice that counts")
    assert slow.outcome is Outcome.OK, slow.reason
    assert slow.dropped is not None and slow.samples == () and slow.answers is None
    assert slow.dropped.reason.startswith(f"after a slice of {alone.plan.slice_prompts} requests: output_tok_s -")
    assert slow.measure_s < alone.measure_s / 2
    assert (folder / slow.slices[0].raw).exists()
