"""Lists for the search from a baseline's own counts, or from its raw results."""

import json
from dataclasses import replace

import pytest

from advisor.engine.capture import CaptureRequest, capture_list
from advisor.records import Active, EngineFacts, Facts, GpuFacts, GraphSteps, ModelFacts
from advisor.study.planned_lists import plan_lists
from tests.search.test_token_times import served
from tests.study_help import trial

FACTS = Facts(
    GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0"),
    EngineFacts("py", "3.12", "0.26.0", "2.11.0", "cuda"),
    ModelFacts("m", "LlamaForCausalLM", "0" * 16, 32, 4096, 32, 8, 128, 128256, 4096),
)
RESOLVED = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192, "cudagraph_mode": "FULL_AND_PIECEWISE"}
ACTIVE = Active(
    cudagraph_mode="FULL_AND_PIECEWISE", capture_sizes=tuple(range(1, 52)), graph_memory_gib=0.98, capture_s=5.0
)


@pytest.fixture
def baseline(tmp_path):
    """24 requests in flight, prompts of 5,000 tokens, one sample with its raw result."""
    raw, _, _ = served(24, [40 + i % 17 for i in range(240)], prompt=5000)
    (tmp_path / "bench.json").write_text(json.dumps(raw))
    made = trial(0, {}, 1000.0, phase="baseline", seeds=(0,))
    samples = (replace(made.samples[0], raw="bench.json"),)
    return replace(made, samples=samples, active=ACTIVE, resolved=RESOLVED)


def plan(baseline, folder, args=("--load-format", "dummy"), facts=FACTS):
    return plan_lists(args, {}, facts, folder, baseline)


def test_from_raw_results(baseline, tmp_path):
    found = plan(baseline, tmp_path)
    assert 1 <= len(found.lists) <= 3 and "from when the client saw its tokens" in found.note
    assert all(20 <= sizes[-1] <= 24 for sizes in found.lists)  # nothing larger decoded; prompts fit no graph
    for sizes in found.lists:
        request = CaptureRequest((0, 26, 0), 1024, 8192, sizes=sizes)
        assert capture_list(request).sizes == sizes
    assert plan(baseline, tmp_path) == found  # a study that goes on gets the same


def test_the_servers_own_table_comes_first(baseline, tmp_path):
    counted = replace(ACTIVE, graph_steps=(GraphSteps(96, 96, "FULL", 500), GraphSteps(40, 40, "FULL", 50)))
    found = plan(replace(baseline, active=counted), tmp_path)
    assert "counted by the server" in found.note and {sizes[-1] for sizes in found.lists} == {96}


def test_speculation_multiplies_the_batch(baseline, tmp_path):
    args = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}')
    found = plan(baseline, tmp_path, args)
    assert found.lists and all(size % 4 == 0 for sizes in found.lists for size in sizes)
    assert max(sizes[-1] for sizes in found.lists) in (92, 96)


@pytest.mark.parametrize("change", ["no raw", "no file", "no numbers", "not valid"])
def test_without_batches_there_is_no_plan_and_a_reason(baseline, tmp_path, change):
    sample = baseline.samples[0]
    if change == "no raw":
        sample = replace(sample, raw=None)
    elif change == "no file":
        (tmp_path / "bench.json").unlink()
    elif change == "no numbers":
        (tmp_path / "bench.json").write_text('{"ttfts": 3}')
    else:
        sample = replace(sample, problems=("too short",))
    found = plan(replace(baseline, samples=(sample,)), tmp_path)
    assert found.lists == () and "not known" in found.note


def test_where_nothing_is_captured(baseline, tmp_path):
    eager = replace(baseline, active=replace(ACTIVE, enforce_eager=True))
    assert plan(eager, tmp_path).lists == () and "nothing is captured" in plan(eager, tmp_path).note
    cpu = replace(FACTS, engine=replace(FACTS.engine, platform="cpu"))
    assert plan(baseline, tmp_path, facts=cpu).lists == ()
