"""Modes before and after the backend is known: the tables that running vLLM's own functions gave, and each version's rules."""

from __future__ import annotations

import itertools
import json
import subprocess

import pytest

from advisor.engine.rules.graph_modes import ERAS, GRAPH_MODES, Asked, configured, configured_on_cpu, rewritten_mode

V = (0, 26, 0)
SUPPORTS = ("ALWAYS", "UNIFORM_BATCH", "UNIFORM_SINGLE_TOKEN_DECODE", "NEVER")

# (support, speculative) -> FULL asked with attention split, FULL without, FULL_DECODE_ONLY split, FULL_AND_PIECEWISE split.
TABLE = {
    ("ALWAYS", False): ("FULL", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
    ("UNIFORM_BATCH", False): ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
    ("UNIFORM_BATCH", True): ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
    ("UNIFORM_SINGLE_TOKEN_DECODE", False): (
        "FULL_AND_PIECEWISE",
        "FULL_DECODE_ONLY",
        "FULL_DECODE_ONLY",
        "FULL_AND_PIECEWISE",
    ),
    ("UNIFORM_SINGLE_TOKEN_DECODE", True): ("PIECEWISE", "NONE", "PIECEWISE", "PIECEWISE"),
    ("NEVER", False): (None, None, "PIECEWISE", "PIECEWISE"),
}


@pytest.mark.parametrize(("support", "speculative"), TABLE)
def test_rewriting_once_the_backend_is_known(support, speculative):
    arms = (("FULL", True), ("FULL", False), ("FULL_DECODE_ONLY", True), ("FULL_AND_PIECEWISE", True))
    for (mode, compiled), becomes in zip(arms, TABLE[support, speculative], strict=True):
        found = rewritten_mode(mode, support, V, compiled, speculative)
        assert (None if found.refused else found.mode) == becomes
        assert (found.reason is None) == (found.mode == mode and not found.refused)


def test_piecewise_stays_and_unknown_support_concludes_nothing():
    for support in (*SUPPORTS, "UNKNOWN"):
        assert rewritten_mode("PIECEWISE", support, V).mode == "PIECEWISE"
    assert rewritten_mode("FULL", "UNKNOWN", V).mode == "FULL"


def test_0_10_2_refuses_decode_graphs_of_a_backend_without_any():
    assert rewritten_mode("FULL_DECODE_ONLY", "NEVER", (0, 10, 2)).refused
    assert rewritten_mode("FULL_DECODE_ONLY", "NEVER", (0, 11, 0)).mode == "PIECEWISE"


def test_full_cuda_graph_of_0_10_0_is_refused_or_kept():
    assert rewritten_mode("FULL", "NEVER", (0, 10, 0)).refused
    assert rewritten_mode("FULL", "ALWAYS", (0, 10, 0)).mode == "FULL"


OWN_FUNCTION = """
import itertools, json, os, sys
out = os.fdopen(os.dup(1), "w"); os.dup2(2, 1)
from vllm.config.compilation import CompilationConfig, CompilationMode, CUDAGraphMode
from vllm.v1.attention.backend import AttentionCGSupport
found = []
for mode, support, compiled, speculative in itertools.product(*json.loads(sys.argv[1])):
    config = CompilationConfig(mode=CompilationMode.VLLM_COMPILE if compiled else CompilationMode.NONE,
        cudagraph_mode=mode, cudagraph_capture_sizes=[1, 2, 4], max_cudagraph_capture_size=4)
    config.splitting_ops = list(config._attention_ops) if compiled else []
    try:
        found.append(config.resolve_cudagraph_mode_and_sizes(AttentionCGSupport[support], "x", 2 if speculative else 1,
            use_v2_model_runner=True).name)
    except ValueError:
        found.append(None)
out.write(json.dumps(found))
"""


@pytest.mark.engine
def test_rewriting_agrees_with_the_installed_function(engine_python):
    axes = [list(GRAPH_MODES), list(SUPPORTS), [True, False], [True, False]]
    run = subprocess.run(
        [engine_python, "-c", OWN_FUNCTION, json.dumps(axes)], capture_output=True, text=True, check=True, timeout=180
    )
    cases = list(itertools.product(*axes))
    ours = [rewritten_mode(mode, support, (0, 32, 0), compiled, spec) for mode, support, compiled, spec in cases]
    told = json.loads(run.stdout)
    assert len(told) == len(cases) == 80
    assert [case for case, a, b in zip(cases, told, ours, strict=True) if a != (None if b.refused else b.mode)] == []


# ---------------------------------------------------------------- before the model is loaded


def modes(version, **asked):
    found = configured(Asked(version, **asked))
    return (found.level, found.compilation, "refused" if found.refusal else found.graphs)


@pytest.mark.parametrize(
    ("version", "asked", "expected"),
    [
        ((0, 9, 0), {}, (None, "VLLM_COMPILE", "PIECEWISE")),
        ((0, 10, 0), {"compilation": "NONE"}, (None, "VLLM_COMPILE", "PIECEWISE")),  # set anew in post-init
        ((0, 10, 0), {"eager": True, "compilation": "VLLM_COMPILE"}, (None, "VLLM_COMPILE", "NONE")),
        ((0, 10, 2), {}, (None, "VLLM_COMPILE", "PIECEWISE")),
        ((0, 10, 2), {"compilation": "NONE"}, (None, "NONE", "NONE")),
        ((0, 11, 0), {}, (None, "VLLM_COMPILE", "FULL_AND_PIECEWISE")),
        ((0, 11, 2), {"compilation": "NONE", "graphs": "PIECEWISE"}, (None, "NONE", "refused")),
        ((0, 11, 2), {"compilation": "NONE", "graphs": "FULL"}, (None, "NONE", "FULL")),
        ((0, 12, 0), {}, (2, "VLLM_COMPILE", "FULL_AND_PIECEWISE")),
        ((0, 12, 0), {"level": 0}, (0, "NONE", "NONE")),
        ((0, 12, 0), {"level": 1}, (1, "VLLM_COMPILE", "PIECEWISE")),
        ((0, 12, 0), {"compilation": "NONE", "graphs": "FULL"}, (2, "NONE", "NONE")),
        ((0, 13, 0), {"compilation": "NONE", "graphs": "FULL"}, (2, "NONE", "FULL")),
        ((0, 13, 0), {"compilation": "NONE"}, (2, "NONE", "NONE")),
        ((0, 13, 0), {"eager": True}, (0, "NONE", "NONE")),
        ((0, 13, 0), {"eager": True, "compilation": "VLLM_COMPILE"}, (0, "VLLM_COMPILE", "NONE")),
        ((0, 17, 1), {"eager": True, "compilation": "VLLM_COMPILE"}, (2, "NONE", "NONE")),
        ((0, 26, 0), {"level": 3}, (3, "VLLM_COMPILE", "FULL_AND_PIECEWISE")),
        ((0, 29, 0), {"compilation": "NONE", "graphs": "FULL_AND_PIECEWISE"}, (2, "NONE", "NONE")),
        ((0, 30, 0), {"compilation": "NONE", "graphs": "FULL_AND_PIECEWISE"}, (2, "NONE", "FULL_DECODE_ONLY")),
        ((0, 30, 0), {"compilation": "NONE", "graphs": "PIECEWISE"}, (2, "NONE", "NONE")),
        ((0, 26, 0), {"split": False}, (2, "VLLM_COMPILE", "FULL")),
        ((0, 26, 0), {"split": False, "graphs": "PIECEWISE"}, (2, "VLLM_COMPILE", "NONE")),
        ((0, 10, 2), {"split": False}, (None, "VLLM_COMPILE", "FULL")),
        ((0, 26, 0), {"no_compile": "breakable-graphs", "breakable": True}, (2, "NONE", "FULL_AND_PIECEWISE")),
        ((0, 26, 0), {"no_compile": "torch-compile-disable"}, (2, "NONE", "NONE")),
        (
            (0, 32, 0),
            {"compilation": "STOCK_TORCH_COMPILE", "graphs": "FULL", "runner_v2": True},
            (2, "STOCK_TORCH_COMPILE", "NONE"),
        ),
        ((0, 31, 0), {"compilation": "STOCK_TORCH_COMPILE", "graphs": "FULL"}, (2, "STOCK_TORCH_COMPILE", "FULL")),
    ],
)
def test_configured(version, asked, expected):
    assert modes(version, **asked) == expected


def test_eager_needs_no_sentence_and_a_lost_graph_does():
    assert configured(Asked(V, eager=True, graphs="FULL")).rewrites == ()
    lost = configured(Asked(V, compilation="NONE"))
    assert "FULL_AND_PIECEWISE becomes NONE" in lost.rewrites[0][0]
    assert lost.origins["cudagraph_mode"] == "rewrite:piecewise-needs-compilation"


def test_a_cpu_traces_once_and_has_no_graphs():
    found = configured_on_cpu(Asked((0, 32, 0)))
    assert (found.level, found.compilation, found.graphs) == (2, "DYNAMO_TRACE_ONCE", "NONE")
    assert configured_on_cpu(Asked((0, 32, 0), level=0)).compilation == "NONE"


def test_eras_are_in_order():
    assert [entry.since for entry in ERAS] == sorted(entry.since for entry in ERAS)
