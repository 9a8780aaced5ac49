"""The space before and after the baseline: what is asked of vLLM, how often, and when its process may end."""

import json
from dataclasses import replace

import pytest

from advisor.errors import LaunchesFailed
from advisor.progress import Silent
from advisor.records import BackendFacts, EngineFacts, Facts, GpuFacts, GraphSteps, ModelFacts, Workload
from advisor.request import TuneRequest
from advisor.search.budget import Budget
from advisor.space.spec import load_space
from advisor.study.setup import space_name
from advisor.study.spaces import Spaces
from tests.search.test_planned_baseline import ACTIVE, RESOLVED
from tests.study_help import trial

SIZES = "cudagraph_capture_sizes"
CUDA = Facts(
    GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0"),
    EngineFacts(
        "py", "3.12", "0.26.0", "2.11.0", "cuda", backends=(BackendFacts("FLASH_ATTN"), BackendFacts("TRITON_ATTN"))
    ),
    ModelFacts("m", "LlamaForCausalLM", "0" * 16, 32, 4096, 32, 8, 128, 128256, 4096),
)
CPU = replace(CUDA, gpu=GpuFacts("cpu", "EPYC", "cpu", 2, 24.0), engine=replace(CUDA.engine, platform="cpu"))


def test_a_space_is_named_as_option_space_takes_it(tmp_path):
    workload = Workload("tiny", 64, 32, 48, concurrency=4)
    request = TuneRequest(model="m", gpu="auto", workload=workload, budget=Budget(600.0), engine_python="py")
    assert space_name(request, CUDA) == "default" and space_name(request, CPU) == "cpu"
    assert space_name(replace(request, space=load_space("scheduler")), CUDA) == "scheduler"
    own = tmp_path / "own.yaml"  # it may call itself as a shipped one does, and is another one
    own.write_text("schema: advisor.space/1\nname: default\nextends: default\ndrop: [enforce_eager]\n")
    assert space_name(replace(request, space=load_space(str(own))), CUDA) == "default.yaml"
    own.write_text(own.read_text().replace("name: default", "name: mine"))
    assert space_name(replace(request, space=load_space(str(own))), CUDA) == "mine.yaml"


class Resolution:
    """Everything is accepted and resolves to itself; questions are counted."""

    def __init__(self, refuses=False):
        self.asked, self.closed, self.refuses = [], 0, refuses

    def resolve(self, arguments, env):
        self.asked.append(json.dumps([arguments, env]))
        if self.refuses:
            return {"ok": False, "error": "no such model"}
        return {"ok": True, "resolved": {**RESOLVED, "fingerprint": self.asked[-1]}}

    def close(self):
        self.closed += 1


class Notes(Silent):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def spaces(tmp_path, facts=CUDA, **changes):
    workload = Workload("chat", 1024, 128, 256, concurrency=64)
    request = TuneRequest("m", "auto", workload, Budget(600.0), "py", **changes)
    resolution, notes = Resolution(), Notes()
    return Spaces(request, facts, tmp_path, resolution, notes), resolution, notes


def baseline():
    """96 requests decode together, then 40: what the server counted."""
    counted = replace(ACTIVE, graph_steps=(GraphSteps(96, 96, "FULL", 500), GraphSteps(40, 40, "FULL", 50)))
    return replace(trial(0, {}, 1000.0, phase="baseline"), active=counted, resolved=RESOLVED)


def lists(space):
    return {tuple(item.settings[SIZES]) for item in space.candidates if SIZES in item.settings}


def test_planned_lists_take_the_place_of_the_named_ones_once_the_baseline_has_run(tmp_path):
    made, resolution, notes = spaces(tmp_path)
    before = made.of()
    assert resolution.closed == 0  # it will be asked again
    after = made.of(baseline())
    assert resolution.closed == 1
    assert lists(after) and lists(after).isdisjoint(lists(before))
    assert all(sizes[-1] == 96 for sizes in lists(after))
    assert len(resolution.asked) == len(set(resolution.asked))  # nothing twice
    assert any(note.endswith("capture lists planned from 550 steps (counted by the server)") for note in notes.notes)
    assert made.of(baseline()) is after


def test_a_study_that_goes_on_gets_the_same_space_at_once(tmp_path):
    first, _, _ = spaces(tmp_path)
    first.of()
    again, resolution, notes = spaces(tmp_path)
    found = again.of(baseline())
    assert [item.key for item in found.candidates] == [item.key for item in first.of(baseline()).candidates]
    assert resolution.closed == 1 and sum("distinct candidates" in note for note in notes.notes) == 1


def test_on_a_processor_nothing_is_planned_asked_again_or_said(tmp_path):
    made, resolution, notes = spaces(tmp_path, CPU)
    before = made.of()
    asked, told = len(resolution.asked), list(notes.notes)
    assert resolution.closed == 1  # its memory is the server's
    assert made.of(baseline()) is before
    assert (len(resolution.asked), notes.notes) == (asked, told)


def test_without_a_plan_the_named_lists_stay_and_a_person_is_told(tmp_path):
    made, resolution, notes = spaces(tmp_path)
    before = made.of()
    asked = len(resolution.asked)
    assert made.of(replace(baseline(), active=ACTIVE)) is before  # no counts, no raw results
    assert len(resolution.asked) == asked and resolution.closed == 1
    assert notes.notes[-1] == "no capture lists are planned: the baseline's batches are not known"


def test_lists_that_a_person_fixed_are_not_planned_anew(tmp_path):
    made, resolution, _ = spaces(tmp_path, serve_args=("-cc.cudagraph_capture_sizes=[8,64]",))
    before = made.of()
    assert resolution.closed == 1 and made.of(baseline()) is before and not lists(before)


def test_a_baseline_that_vllm_refuses_ends_the_tune(tmp_path):
    made, resolution, _ = spaces(tmp_path)
    resolution.refuses = True
    with pytest.raises(LaunchesFailed, match="vLLM refuses the baseline: no such model"):
        made.of()
