"""Resolution by rules: defaults by version and GPU, origins, findings, assumptions and inert settings."""

from __future__ import annotations

import pytest

from advisor.engine.options import ServeOptions, parse_options
from advisor.engine.rules.batch_defaults import batch_limits, default_tier
from advisor.engine.rules.model_runner import runner_v2
from advisor.engine.rules.requested import read_request
from advisor.engine.rules.resolution import inert_settings, resolve_by_rules
from advisor.records import ModelFacts

V = (0, 26, 0)
H200 = {"compute_capability": (9, 0), "gpu_memory_gib": 140.4}
A100 = {"compute_capability": (8, 0), "gpu_memory_gib": 79.3}
LLAMA = ModelFacts("a/b", "LlamaForCausalLM", "0" * 16, 32, 4096, 32, 8, 128, 128256, 131072, dtype="bfloat16")


def resolve(words="", version=V, env=None, **around):
    around = {**H200, "model": LLAMA, **around}
    return resolve_by_rules(parse_options(words.split()), env or {}, version, **around)


def codes(found):
    return {finding.code for finding in found.findings}


# ---------------------------------------------------------------- batch defaults


@pytest.mark.parametrize(
    ("version", "platform", "memory", "capability", "seqs", "tokens"),
    [
        ((0, 9, 0), "cuda", 79.6, (9, 0), 1024, 8192),
        ((0, 9, 0), "cuda", 24, (8, 9), 256, 2048),
        ((0, 26, 0), "cuda", 79.3, (8, 0), 256, 2048),  # an A100
        ((0, 26, 0), "cuda", 178, (10, 0), 1024, 8192),
        ((0, 28, 0), "cuda", 178, (10, 0), 1024, 16384),
        ((0, 28, 0), "cuda", 140.4, (9, 0), 1024, 8192),
        ((0, 32, 0), "cuda", 119, (12, 1), 1024, 8192),
        ((0, 33, 0), "cuda", 119, (12, 1), 256, 2048),  # a GB10
        ((0, 9, 2), "cpu", 0, None, 32, 2048),
        ((0, 10, 0), "cpu", 0, None, 128, 2048),
    ],
)
def test_default_batch(version, platform, memory, capability, seqs, tokens):
    tier = default_tier(version, platform, memory, capability)
    assert (tier.seqs, tier.tokens) == (seqs, tokens)


def limits(version, tier_memory=140.4, seqs=None, tokens=None, **more):
    found = batch_limits(version, default_tier(version, "cuda", tier_memory, (9, 0)), seqs=seqs, tokens=tokens, **more)
    return found.max_num_seqs, found.max_num_batched_tokens


def test_limits_are_fitted_to_each_other_and_to_the_model():
    assert limits(V, tokens=100) == (100, 100)
    assert limits(V, seqs=4, model_length=512) == (4, 2048)
    assert limits((0, 11, 0), seqs=4, model_length=512) == (4, 8192)
    assert limits(V, model_length=32768, chunked_prefill=False) == (1024, 32768)
    assert limits(V, throughput=True) == (2048, 16384)
    assert limits((0, 16, 0), throughput=True) == (1024, 8192)
    assert limits(V, seqs=64, throughput=True) == (64, 16384)


def test_before_0_10_2_the_default_is_not_lowered_and_so_refused():
    tier = default_tier((0, 10, 0), "cuda", 80, (9, 0))
    assert batch_limits((0, 10, 0), tier, seqs=None, tokens=512).refusal is not None
    assert batch_limits((0, 10, 2), tier, seqs=None, tokens=512).refusal is None


def test_workers_multiply_the_defaults_of_a_cpu():
    found = resolve("--tensor-parallel-size 2", (0, 32, 0), platform="cpu")
    assert (found.values["max_num_seqs"], found.values["max_num_batched_tokens"]) == (256, 4096)


# ---------------------------------------------------------------- whole answers


def test_defaults_on_an_h200():
    found = resolve()
    assert found.source == "rules" and found.vllm_version == "0.26.0"
    assert found.values["optimization_level"] == 2
    assert found.values["compilation_mode"] == "VLLM_COMPILE"
    assert found.values["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert found.values["max_cudagraph_capture_size"] == 512
    assert found.values["attention_backend"] == "FLASH_ATTN"
    assert (found.values["max_num_seqs"], found.values["max_num_batched_tokens"]) == (1024, 8192)
    assert found.values["model_runner"] == "V2"
    assert set(found.origins.values()) == {"default"}
    assert found.findings == ()
    assert not any("GPU is not given" in text or "config is not given" in text for text in found.assumed)


def test_what_is_not_given_is_said():
    found = resolve_by_rules(ServeOptions(), {}, V)
    assert found.values["max_num_seqs"] == 1024
    assert any("H100" in text for text in found.assumed) and any("head size 128" in text for text in found.assumed)


def test_an_a100_is_said_to_be_taken_for_one():
    found = resolve(**A100)
    assert found.values["max_num_seqs"] == 256
    assert any("A100" in text for text in found.assumed)


def test_what_the_rules_do_not_know_is_absent():
    found = resolve(version=(0, 9, 0), platform="cpu")
    assert found.values["max_num_seqs"] is None and found.values["max_num_batched_tokens"] is None
    assert any("not known" in text for text in found.assumed)
    unknown = resolve("--attention-backend STEP5_DSA", (0, 33, 0))
    assert unknown.values["graph_support"] == "UNKNOWN" and any(
        "no rewriting is assumed" in text for text in unknown.assumed
    )


def test_full_becomes_something_else_on_a_backend_that_cannot():
    found = resolve("-cc.cudagraph_mode=FULL --attention-backend FLASHINFER")
    assert found.values["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert found.values["cudagraph_mode_in_config"] == "FULL"
    assert found.origins["cudagraph_mode"] == "rewrite:backend-support"
    assert "graph-mode-rewritten" in codes(found)
    assert resolve("-cc.cudagraph_mode=FULL").values["cudagraph_mode"] == "FULL"


def test_full_without_compilation_on_flashattention_2():
    found = resolve("-cc.cudagraph_mode=FULL -cc.mode=NONE", **A100)
    assert found.values["cudagraph_mode"] == "FULL_DECODE_ONLY"


def test_flashinfer_with_speculation_loses_its_full_graphs():
    options = ServeOptions(
        {"--attention-backend": "FLASHINFER", "--speculative-config": '{"method":"ngram","num_speculative_tokens":3}'}
    )
    found = resolve_by_rules(options, {}, V, model=LLAMA, **H200)
    assert found.values["cudagraph_mode"] == "PIECEWISE" and found.values["model_runner"] == "V1"
    assert resolve_by_rules(options, {}, (0, 32, 0), model=LLAMA, **H200).values["model_runner"] == "V2"


def test_never_is_refused_at_start():
    found = resolve("-cc.cudagraph_mode=FULL", (0, 19, 1), env={}, model=LLAMA, **H200)
    assert "graph-mode-refused" not in codes(found)
    flex = resolve("-cc.cudagraph_mode=FULL --attention-backend FLEX_ATTENTION", (0, 19, 1))
    assert "graph-mode-refused" in codes(flex) and flex.values["refused"] == []  # not by the configuration


def test_a_backend_that_does_not_fit_is_an_error_with_the_reasons():
    found = resolve("--attention-backend FLASH_ATTN --dtype float32")
    finding = next(item for item in found.findings if item.code == "backend-invalid")
    assert finding.severity == "error" and "float32" in finding.message
    old = resolve(version=(0, 11, 0), env={"VLLM_ATTENTION_BACKEND": "FLASH_ATTN"}, compute_capability=(7, 5))
    assert next(item for item in old.findings if item.code == "backend-invalid").severity == "warning"


@pytest.mark.parametrize(
    ("words", "env", "version", "backend", "code", "origin"),
    [
        ("", "TRITON_ATTN", (0, 12, 0), "TRITON_ATTN", None, "env"),
        ("--attention-backend TRITON_ATTN", "TRITON_ATTN", (0, 13, 0), "TRITON_ATTN", "env-backend-clash", "flag"),
        ("-ac.backend=FLASHINFER", "TRITON_ATTN", (0, 14, 1), "TRITON_ATTN", "env-backend-beats-config", "env"),
        ("-ac.backend=TRITON_ATTN", "TRITON_ATTN", (0, 14, 1), "TRITON_ATTN", None, "env"),
        ("", "TRITON_ATTN", (0, 15, 1), "FLASH_ATTN", "env-backend-ignored", "default"),
        ("--attention-backend FLASHINFER", "TRITON_ATTN", (0, 26, 0), "FLASHINFER", "env-backend-ignored", "flag"),
        ("", "TRITON", (0, 10, 0), "FLASH_ATTN", "backend-unknown", "default"),
        ("--attention-backend TRITON", None, (0, 26, 0), "FLASH_ATTN", "backend-unknown", "default"),
        ("--attention-backend auto", None, (0, 26, 0), "FLASH_ATTN", None, "default"),
        ("--attention-backend FLASHINFER -ac.backend=FLASHINFER", None, V, "FLASHINFER", "backend-set-twice", "flag"),
    ],
)
def test_where_the_backend_comes_from(words, env, version, backend, code, origin):
    found = resolve(words, version, env={"VLLM_ATTENTION_BACKEND": env} if env else {})
    assert found.values["attention_backend"] == backend
    assert found.origins["attention_backend"] == origin
    assert {item for item in codes(found) if item.startswith(("env-", "backend-"))} == ({code} if code else set())


def test_a_typo_is_refused_from_0_10_2_and_passed_over_before():
    env = {"VLLM_ATTENTION_BACKEND": "TRITON"}
    assert resolve(version=(0, 10, 2), env=env).values["refused"]
    assert not resolve(version=(0, 10, 0), env=env).values["refused"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--max-num-seqs 512 --max-num-batched-tokens 256", "batched-tokens-below-seqs"),
        ("-cc.cudagraph_mode=SOMETIMES", "graph-mode-refused"),
        ("-cc.mode=EAGERLY", "compilation-mode-unknown"),
        ("--optimization-level 4", "value-invalid"),
        ("--dtype int8", "value-invalid"),
        ("--max-num-seqs none", "value-invalid"),
        ("--max-model-len 200000", "max-model-len-above-model"),
    ],
)
def test_what_the_configuration_refuses(words, code):
    found = resolve(words)
    assert code in codes(found) and found.values["refused"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("-O3", "optimization-o3-equals-o2"),
        ("-cc.cudagraph_num_of_warmups=5", "warmups-always-reset"),
        ("--enforce-eager -cc.cudagraph_mode=FULL", "eager-with-graph-settings"),
        ("-cc.mode=NONE", "graph-mode-rewritten"),
    ],
)
def test_what_is_worth_saying(words, code):
    found = resolve(words)
    assert code in codes(found) and not found.values["refused"]


def test_no_graphs_on_a_cpu():
    found = resolve("-cc.cudagraph_mode=FULL --attention-backend FLASH_ATTN", (0, 32, 0), platform="cpu")
    assert found.values["cudagraph_mode"] == "NONE" and found.values["cudagraph_capture_sizes"] == []
    assert found.values["attention_backend"] == "CPU_ATTN" and found.origins["attention_backend"] == "rewrite:cpu"
    assert {"graphs-on-cpu", "backend-invalid"} <= codes(found)


def test_breakable_graphs_keep_piecewise_without_the_compiler():
    env = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
    assert resolve(env=env).values["compilation_mode"] == "NONE"
    assert resolve(env=env).values["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert resolve(version=(0, 21, 0), env=env).values["compilation_mode"] == "VLLM_COMPILE"


def test_it_is_quick():
    import time

    started = time.perf_counter()
    for _ in range(20):
        resolve("-O1 --max-num-seqs 300")
    assert time.perf_counter() - started < 1.0


# ---------------------------------------------------------------- the request


def test_spellings_of_older_releases_meet():
    def of(version, **values):
        return read_request(
            ServeOptions({f"--{name.replace('_', '-')}": value for name, value in values.items()}), {}, version
        )

    assert of((0, 10, 0), optimization_level="3").compilation == "VLLM_COMPILE"
    assert of((0, 10, 0), optimization_level="3").level is None
    assert of((0, 9, 0), compilation_config="2").compilation == "DYNAMO_TRACE_ONCE"
    assert of((0, 14, 1), compilation_config={"level": 0}).compilation == "NONE"
    assert of((0, 10, 0), compilation_config={"full_cuda_graph": True}).graphs == "FULL"
    assert of((0, 11, 2), compilation_config={"full_cuda_graph": True}).graphs is None
    assert of((0, 10, 2), cuda_graph_sizes="64").maximum == 64
    several = of((0, 10, 2), cuda_graph_sizes=["1", "2"])
    assert several.sizes == (1, 2) and several.sizes_by_flag
    assert of((0, 11, 2), cuda_graph_sizes="64").sizes == (64,)
    assert of(V, max_model_len="8k").max_model_len == 8000
    assert of(V, max_model_len="8K").max_model_len == 8192
    assert of(V, max_model_len="auto").max_model_len is None
    assert of(V, speculative_config={"model": "[ngram]", "num_speculative_tokens": 2}).speculative_method == "ngram"


@pytest.mark.parametrize(
    ("version", "architecture", "experts", "method", "v2"),
    [
        ((0, 21, 0), "Qwen3ForCausalLM", False, None, False),
        ((0, 22, 1), "Qwen3ForCausalLM", False, None, True),
        ((0, 22, 1), "LlamaForCausalLM", False, None, False),
        ((0, 23, 0), "LlamaForCausalLM", False, None, True),
        ((0, 24, 0), "Qwen2MoeForCausalLM", True, None, True),
        ((0, 26, 0), "Qwen3MoeForCausalLM", True, None, False),
        ((0, 26, 0), "Phi3ForCausalLM", False, None, True),
        ((0, 26, 0), None, None, None, None),
        ((0, 26, 0), None, None, "ngram", False),
        ((0, 30, 0), "Qwen3MoeForCausalLM", True, None, True),
        ((0, 31, 0), "LlamaForCausalLM", False, "ngram", False),
        ((0, 32, 0), "LlamaForCausalLM", False, "ngram", True),
        ((0, 33, 0), "LlamaForCausalLM", False, "medusa", False),
    ],
)
def test_model_runner(version, architecture, experts, method, v2):
    assert runner_v2(version, {}, architecture=architecture, experts=experts, speculative_method=method) is v2


def test_the_model_runner_can_be_asked_for():
    asked = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert runner_v2((0, 33, 0), asked, architecture=None, experts=None) is False


# ---------------------------------------------------------------- inert settings


@pytest.mark.parametrize(
    ("settings", "platform", "inert"),
    [
        (
            {"enforce_eager": True, "cudagraph_mode": "FULL", "compilation_mode": "NONE"},
            "cuda",
            {"cudagraph_mode", "compilation_mode"},
        ),
        ({"optimization_level": 3, "attention_backend": "TRITON_ATTN"}, "cuda", {"optimization_level"}),
        ({"optimization_level": 2}, "cuda", set()),
        ({"cudagraph_num_of_warmups": 4}, "cuda", {"cudagraph_num_of_warmups"}),
        ({"cudagraph_mode": "NONE", "cudagraph_capture_sizes": (1, 2)}, "cuda", {"cudagraph_capture_sizes"}),
        ({"cudagraph_mode": "FULL", "attention_backend": "FLASH_ATTN"}, "cpu", {"cudagraph_mode", "attention_backend"}),
        ({"cudagraph_mode": "FULL", "--max-num-seqs": "4"}, "cuda", set()),
    ],
)
def test_inert_settings(settings, platform, inert):
    found = inert_settings(settings, platform)
    assert set(found) == inert and all(found.values())


def test_an_explicit_mode_beside_eager_was_kept_until_0_16():
    settings = {"enforce_eager": True, "compilation_mode": "VLLM_COMPILE"}
    assert inert_settings(settings, "cuda", (0, 16, 0)) == {}
    assert "compilation_mode" in inert_settings(settings, "cuda", (0, 17, 1))
