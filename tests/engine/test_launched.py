"""Resolved equals active: what the rules say before a launch against what real servers on an H200 said they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.engine.agreement import judge, rewritten_at_start
from advisor.engine.logs import parse_active
from advisor.engine.options import parse_options
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.records import Candidate, Command, EngineFacts, Facts, GpuFacts, ModelFacts

LOGS = sorted((Path(__file__).parents[1] / "data" / "launches" / "h200-0.26").glob("*.log"))
GPU = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0")
QWEN = ModelFacts(
    "Qwen3-0.6B", "Qwen3ForCausalLM", "0" * 16, 28, 1024, 16, 8, 128, 151936, 40960, dtype="bfloat16"
)


def test_enough_were_launched():
    assert len(LOGS) >= 12


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_resolved_is_active(path):
    first, _, log = path.read_text().partition("\n")
    argv = json.loads(first.partition("[")[1] + first.partition("[")[2])
    resolved = resolve_by_rules(
        parse_options(argv), {}, (0, 26, 0), compute_capability=(9, 0), gpu_memory_gib=139.8, model=QWEN
    ).values
    active = parse_active(log)
    assert resolved["compilation_mode"] == active.compilation_mode
    assert resolved["cudagraph_mode"] == active.cudagraph_mode
    assert [resolved["attention_backend"]] == list(active.attention_backends)
    assert resolved["enforce_eager"] == active.enforce_eager
    # The log shows the configured list; with speculation the runner rounds it afterwards.
    assert list(resolved["cudagraph_capture_sizes_in_config"]) == list(active.capture_sizes)
    assert rewritten_at_start({**resolved, "cudagraph_capture_sizes": None}, active) == ()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_counted_steps_ran_as_foretold(path):
    """Of a launch with --cudagraph-metrics: every decode step in a graph that the capture list has, padded as foretold."""
    first, _, log = path.read_text().partition("\n")
    argv = json.loads(first.partition("[")[1] + first.partition("[")[2])
    active = parse_active(log)
    facts = Facts(GPU, EngineFacts("python", "3.11", "0.26.0", "2.11.0", "cuda"), QWEN)
    command = Command(("python", "-m", "vllm.entrypoints.cli.main", "serve", QWEN.model, *argv))
    found = judge(Candidate(), command, {}, active, active, facts, in_flight=64)
    assert not [note for note in found.notes if "decode steps" in note]
    assert bool(found.active.decode_modes) == bool(active.graph_steps)


COUNTED = [path for path in LOGS if path.stem.startswith("counted")]


def test_steps_were_counted_with_and_without_speculation():
    assert {path.stem for path in COUNTED} == {"counted", "counted-ngram"}


@pytest.mark.parametrize("path", COUNTED, ids=lambda path: path.stem)
def test_every_counted_step_ran_in_the_next_larger_graph(path):
    """Of the list that the rules foretell, those of unequal draft lengths and of prompts included; above it without a graph."""
    first, _, log = path.read_text().partition("\n")
    argv = json.loads(first.partition("[")[1] + first.partition("[")[2])
    sizes = resolve_by_rules(
        parse_options(argv), {}, (0, 26, 0), compute_capability=(9, 0), gpu_memory_gib=139.8, model=QWEN
    ).values["cudagraph_capture_sizes"]
    steps = parse_active(log).graph_steps
    assert sum(step.count for step in steps) >= 40
    for step in steps:
        graph = next((size for size in sizes if size >= step.tokens), None)
        assert (step.padded, step.mode != "NONE") == (graph or step.tokens, graph is not None)


def test_gpt_oss_gets_its_own_larger_list():
    model = ModelFacts("gpt-oss-20b", "GptOssForCausalLM", "0" * 16, 24, 2880, 64, 8, 64, 201088, 131072, dtype="bfloat16")
    around = {"compute_capability": (9, 0), "gpu_memory_gib": 139.8}
    ours = resolve_by_rules(parse_options([]), {}, (0, 26, 0), model=model, **around).values
    other = resolve_by_rules(parse_options([]), {}, (0, 26, 0), model=QWEN, **around).values
    assert (ours["max_cudagraph_capture_size"], other["max_cudagraph_capture_size"]) == (1024, 512)
