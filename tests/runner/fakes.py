"""A real runner whose engine is the fake one and whose client sends nothing."""

import dataclasses
import sys
import time
from pathlib import Path

from advisor.measure.workload import load_workload
from advisor.records import EngineFacts, Facts, GpuFacts, ModelFacts
from advisor.runner.real import RealRunner
from tests.study_help import sample

SITE = Path(__file__).parents[1] / "fakes" / "site"
FACTS = Facts(
    GpuFacts("cpu", "Fake processor", "cpu", 2, 24.0),
    EngineFacts(sys.executable, "3.11", "0.26.0", "2.11.0", "cuda"),
    ModelFacts("fake-model", "LlamaForCausalLM", "0" * 16, 2, 128, 2, 2, 64, 10000, 2048),
)


class QuietClient:
    """Every sample is alike and takes `seconds`; `problems` are those of all seeds, or of `only_seeds`."""

    def __init__(self, problems=(), only_seeds=None, seconds=0.0):
        self.problems, self.only_seeds, self.seconds = problems, only_seeds, seconds

    def use_processes(self, count): ...

    def end_by(self, moment): ...

    def warm_up(self, server_url, served_name, workload):
        return sample(2_000_000_000, 100.0)

    def sample(self, server_url, served_name, workload, seed, folder):
        bad = self.only_seeds is None or seed in self.only_seeds
        time.sleep(self.seconds)
        made = sample(seed, 100.0, problems=self.problems if bad else ())
        return dataclasses.replace(made, prefix_hit_ratio=0.0, preemptions=0)


def quiet_machine(seen, reference):
    """This machine may well be busy with other tests: that is not what a fake sample is judged by."""
    return ()


def fake_runner(folder, problems=(), only_seeds=None, judge_machine=quiet_machine, seconds=0.0):
    env = {"PYTHONPATH": str(SITE), "FAKE_TIME_SCALE": "0.01"}
    client = QuietClient(problems, only_seeds, seconds)
    return RealRunner(FACTS, load_workload("tiny"), (), env, folder, client, judge_machine=judge_machine)
