"""Steps that a server counts with --cudagraph-metrics: read from recorded tables, and judged against what was asked for."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.engine.agreement import judge
from advisor.engine.graph_steps import judge_steps, merged, metrics_arguments, mode_shares, silence, step_row
from advisor.engine.logs import parse_active
from advisor.records import Active, Candidate, Command, EngineFacts, Facts, GpuFacts, GraphSteps, ModelFacts

TABLES = Path(__file__).parents[1] / "data" / "graph_steps"
FACTS = Facts(
    GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0"),
    EngineFacts("python", "3.11", "0.26.0", "2.11.0", "cuda", flags=("--cudagraph-metrics",)),
    # An architecture that 0.26.0 serves with model runner V1, which counts.
    ModelFacts("m", "Qwen3MoeForCausalLM", "0" * 16, 48, 2048, 32, 4, 128, 151936, 40960, dtype="bfloat16", experts=128),
)  # fmt: skip
SIZES = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
RUNNING = Active(
    vllm_version="0.26.0", attention_backends=("FLASH_ATTN",), compilation_mode="VLLM_COMPILE",
    cudagraph_mode="FULL_AND_PIECEWISE", capture_sizes=SIZES, enforce_eager=False,
)  # fmt: skip
RESOLVED = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}


def launched(steps, settings=None, options=(), active=RUNNING, in_flight=64, facts=FACTS):
    command = Command(("python", "-m", "vllm.entrypoints.cli.main", "serve", "m", *options))
    counted = replace(active, graph_steps=tuple(GraphSteps(*step) for step in steps))
    return judge(Candidate(settings or {}), command, RESOLVED, counted, RUNNING, facts, in_flight)


# ---------------------------------------------------------------- reading


def test_the_table_of_a_release_gives_back_what_was_counted():
    case = json.loads((TABLES / "steps.json").read_text())
    found = parse_active((TABLES / "0.26.0.log").read_text()).graph_steps
    assert sorted((s.tokens, s.padded, s.mode, s.count) for s in found) == sorted(map(tuple, case["steps"]))
    assert [step.count for step in found] == sorted((step.count for step in found), reverse=True)


def test_a_real_server_s_table():
    active = parse_active((TABLES / "cpu-0.32-recorded.log").read_text())
    assert active.graph_steps == (GraphSteps(1, 1, "NONE", 7), GraphSteps(4, 4, "NONE", 1))
    assert (active.model_runner, active.cudagraph_mode, active.kv_cache_dtype) == ("V1", "NONE", "fp8")
    assert active.prefix_caching is False


def test_the_words_of_a_request_are_no_table():
    row = "| 64 | 64 | 0 | FULL | 4000 |"
    assert step_row(row) == GraphSteps(64, 64, "FULL", 4000)
    assert parse_active(f"INFO 11-30 00:00:00 [logger.py:39] prompt: '{row}'\n{row}\n").graph_steps == ()


def test_tables_add_up():
    rows = [GraphSteps(1, 1, "FULL", 2), GraphSteps(2, 2, "NONE", 5), GraphSteps(1, 1, "FULL", 4)]
    assert merged(rows) == (GraphSteps(1, 1, "FULL", 6), GraphSteps(2, 2, "NONE", 5))
    assert mode_shares(rows) == {"FULL": 0.5455, "NONE": 0.4545} and mode_shares([]) == {}


# ---------------------------------------------------------------- shares and what was foretold


def test_shares_are_of_decode_steps_only():
    case = json.loads((TABLES / "steps.json").read_text())
    found = launched(case["steps"])
    assert found.active.decode_modes == {
        "FULL": 0.9964,
        "PIECEWISE": 0.0036,
    }  # prompts of 1087 and 2048 tokens left out
    assert found.wrong is None and found.notes == ()


def test_steps_without_the_graph_that_covers_them_are_named():
    found = launched([(64, 64, "FULL", 900), (32, 32, "NONE", 100)])
    assert found.active.decode_modes == {"FULL": 0.9, "NONE": 0.1}
    assert found.notes == (
        "10% of the decode steps (up to 64 tokens) ran without a graph although FULL_AND_PIECEWISE has one of their size",
    )


def test_steps_beyond_the_list_are_named_as_foretold():
    found = launched([(64, 64, "FULL", 500), (100, 100, "NONE", 500)], in_flight=128)
    assert found.notes == (
        "50% of the decode steps hold more tokens than the FULL graphs cover (up to 64): 100% without a graph",
    )


def test_padding_that_was_not_foretold_is_named():
    found = launched([(33, 64, "FULL", 30)])
    assert found.notes == ("30 decode steps were padded otherwise than foretold: 33 tokens to 64, foretold 40",)
    assert launched([(33, 40, "FULL", 30)]).notes == ()


def test_speculation_makes_a_decode_batch_longer():
    given = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
    steps = [(60, 64, "FULL", 100), (17, 24, "NONE", 100), (300, 300, "NONE", 100)]
    assert launched(steps, options=given, in_flight=16).active.decode_modes == {"FULL": 0.5, "NONE": 0.5}


# ---------------------------------------------------------------- asked for and never used


@pytest.mark.parametrize("mode", ["FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"])
def test_full_graphs_that_no_step_used_are_not_as_requested(mode):
    active = replace(RUNNING, cudagraph_mode=mode)
    found = launched(
        [(64, 64, "PIECEWISE", 30), (8, 8, "NONE", 10)], {"cudagraph_mode": mode, "seed": 1}, active=active
    )
    assert found.wrong == (
        f"cudagraph_mode={mode} was asked for, none of 40 decode steps of captured sizes ran in a FULL graph"
        " (75% piecewise, 25% without a graph)"
    )
    assert found.credited_to == Candidate({"cudagraph_mode": "PIECEWISE", "seed": 1})


def test_the_default_s_graphs_are_never_a_wrong_request():
    assert launched([(64, 64, "NONE", 100)]).wrong is None
    assert launched([(64, 64, "NONE", 100)], {"attention_backend": "FLASH_ATTN"}).wrong is None


def test_piecewise_and_none_are_looked_after_too():
    full = [(64, 64, "FULL", 100)]
    piecewise = replace(RUNNING, cudagraph_mode="PIECEWISE")
    found = launched(full, {"cudagraph_mode": "PIECEWISE"}, active=piecewise)
    assert "none of 100 steps ran in a piecewise graph (100% in FULL graphs)" in found.wrong
    assert found.credited_to == Candidate({"cudagraph_mode": "FULL"})
    eager = replace(RUNNING, cudagraph_mode="NONE", capture_sizes=())
    assert "NONE was asked for, 100 of 100" in launched(full, {"cudagraph_mode": "NONE"}, active=eager).wrong
    assert launched([(64, 64, "NONE", 100)], {"cudagraph_mode": "NONE"}, active=eager).wrong is None


def test_few_steps_and_steps_outside_the_list_are_no_evidence():
    asked = {"cudagraph_mode": "FULL_AND_PIECEWISE"}
    assert launched([(64, 64, "NONE", 19)], asked).wrong is None
    assert launched([(100, 100, "NONE", 500)], asked, in_flight=128).wrong is None
    assert judge_steps("FULL", "FULL", [GraphSteps(1, 1, "NONE", 100)], None, 1).wrong is None  # nothing is foretold


# ---------------------------------------------------------------- asking for the table


def test_the_flag_is_asked_for_where_it_exists_and_there_are_graphs():
    assert metrics_arguments(FACTS.engine.flags, "cuda") == ("--cudagraph-metrics",)
    assert metrics_arguments(("--seed",), "cuda") == () == metrics_arguments(FACTS.engine.flags, "cpu")


def test_a_table_that_did_not_come_is_explained():
    asked = ("--cudagraph-metrics",)
    found = launched([], options=asked, active=replace(RUNNING, model_runner="V2"))
    assert found.notes == (silence((0, 26, 0), "V2"),) and "0.30.0" in found.notes[0]
    assert "every 10 s" in launched([], options=asked).notes[0]
    assert launched([]).notes == ()
    cpu = replace(FACTS, engine=replace(FACTS.engine, platform="cpu"))
    assert launched([], options=asked, facts=cpu).notes == ()


@pytest.mark.engine
def test_the_installed_vllm_prints_what_is_read_here(engine_python):
    script = (
        "from vllm import logger\n"
        "from vllm.compilation.cuda_graph import CUDAGraphLogging, CUDAGraphStat\n"
        "logger._configure_vllm_root_logger()\n"
        "table = CUDAGraphLogging('FULL', [1, 8])\n"
        "for _ in range(3): table.observe(CUDAGraphStat(5, 8, 3, 'FULL'))\n"
        "table.observe(CUDAGraphStat(900, 900, 0, 'NONE'))\n"
        "table.log()\n"
    )
    done = subprocess.run([engine_python, "-c", script], capture_output=True, text=True, check=True)
    expected = (GraphSteps(5, 8, "FULL", 3), GraphSteps(900, 900, "NONE", 1))
    assert parse_active(done.stdout).graph_steps == expected
