"""Graph modes that the model's kind, its spreading or a pass changes: what each release does, read in the places named."""

from __future__ import annotations

import dataclasses
import json

import pytest

from advisor.engine.reading.command_line import read_command
from advisor.engine.rules.deployment import pools, read_deployment
from advisor.engine.rules.graph_obstacles import sequence_parallel_on
from advisor.engine.rules.graph_support import with_recurrent
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.inspection.model import facts_from_config
from advisor.records import ModelFacts

H200 = {"compute_capability": (9, 0), "gpu_memory_gib": 140.4}
LLAMA = ModelFacts("a/b", "LlamaForCausalLM", "0" * 16, 32, 4096, 32, 8, 128, 128256, 131072, dtype="bfloat16")
LARGE = dataclasses.replace(LLAMA, hidden_size=8192)
MOE = dataclasses.replace(LLAMA, architecture="Qwen3MoeForCausalLM", experts=128)
BERT = dataclasses.replace(LLAMA, architecture="BertModel", max_length=512)
WHISPER = dataclasses.replace(LLAMA, architecture="WhisperForConditionalGeneration", encoder_decoder=True, max_length=448)
JAMBA = dataclasses.replace(LLAMA, architecture="JambaForCausalLM", recurrent="mamba")
NEXT = dataclasses.replace(LLAMA, architecture="Qwen3NextForCausalLM", recurrent="gated-delta", experts=512)

LMCACHE = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both", "kv_connector_extra_config": {"use_layerwise": True}}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
SEVERAL = {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"connectors": [NIXL, LMCACHE]}}
DYNAMIC = {"method": "eagle3", "model": "x/y", "num_speculative_tokens": 4, "num_speculative_tokens_per_batch_size": {"1": 4}}


def resolve(version, words, model=LLAMA, env=None, **around):
    read = read_command(["vllm", "serve", "a/b", *words], version)
    refused = [finding for finding in read.findings if finding.severity == "error"]
    assert not refused, refused
    return resolve_by_rules(read.options, env or {}, version, **{**H200, "model": model, **around})


def told(found):
    return [(one.severity, one.message) for one in found.findings if one.code == "graph-mode-rewritten"]


def transfer(config):
    return ["--kv-transfer-config", json.dumps(config)]


def passes(**switches):
    return ["--compilation-config", json.dumps({"pass_config": switches})]


FLASHINFER = ["--attention-backend", "FLASHINFER", "-tp", "2", "-dcp", "2"]
EAGLE = ["--speculative-config", json.dumps({"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3})]
SPREAD = ["--data-parallel-size", "2"]
ROWS = [
    # config/vllm.py `__post_init__`, "Pooling models do not support full cudagraphs", from 0.11.2.
    ((0, 11, 2), ["--runner", "pooling"], LLAMA, "PIECEWISE", "pooling-model"),
    ((0, 26, 0), [], BERT, "PIECEWISE", "pooling-model"),
    ((0, 33, 0), ["--convert", "embed"], LLAMA, "PIECEWISE", "pooling-model"),
    ((0, 26, 0), ["--runner", "pooling", "-cc.cudagraph_mode=PIECEWISE"], LLAMA, "PIECEWISE", "flag"),
    ((0, 26, 0), ["--runner", "generate"], BERT, "FULL_AND_PIECEWISE", "default"),
    # config/__init__.py of 0.11.0: the default alone is piecewise, an explicit mode stays.
    ((0, 11, 0), ["--runner", "pooling"], LLAMA, "PIECEWISE", "pooling-model"),
    ((0, 11, 0), ["--runner", "pooling", "-O.cudagraph_mode=FULL_AND_PIECEWISE"], LLAMA, "FULL_AND_PIECEWISE", "flag"),
    # The same place: encoder-decoder models, PIECEWISE in 0.11.2 and 0.12.0, FULL_DECODE_ONLY from 0.13.0.
    ((0, 12, 0), [], WHISPER, "PIECEWISE", "encoder-decoder"),
    ((0, 13, 0), [], WHISPER, "FULL_DECODE_ONLY", "encoder-decoder"),
    ((0, 33, 0), ["-cc.cudagraph_mode=PIECEWISE"], WHISPER, "FULL_DECODE_ONLY", "encoder-decoder"),
    # The same place: "Decode context parallel (DCP)", on CUDA in 0.11.2 and 0.12.0 only.
    ((0, 11, 2), ["--tensor-parallel-size", "2", "--decode-context-parallel-size", "2"], LLAMA, "PIECEWISE", "context-parallel"),
    ((0, 12, 0), ["-tp", "2", "-dcp", "2"], LLAMA, "PIECEWISE", "context-parallel"),
    ((0, 13, 0), ["-tp", "2", "-dcp", "2"], LLAMA, "FULL_AND_PIECEWISE", "default"),
    # `requires_piecewise_for_cudagraph` of the connectors, from 0.17.1.
    ((0, 16, 0), transfer(LMCACHE), LLAMA, "FULL_AND_PIECEWISE", "default"),
    ((0, 17, 1), transfer(LMCACHE), LLAMA, "PIECEWISE", "layerwise-transfer"),
    ((0, 33, 0), transfer(SEVERAL), LLAMA, "PIECEWISE", "layerwise-transfer"),
    ((0, 26, 0), transfer({**LMCACHE, "kv_connector_extra_config": {}}), LLAMA, "FULL_AND_PIECEWISE", "default"),
    # `set_splitting_ops_for_attn_fusion`, from 0.11.2.
    ((0, 11, 2), passes(enable_attn_fusion=True), LLAMA, "FULL", "attention-fusion"),
    ((0, 26, 0), passes(fuse_attn_quant=True), LLAMA, "FULL", "attention-fusion"),
    ((0, 26, 0), [*passes(fuse_attn_quant=True), "-O0"], LLAMA, "NONE", "level"),
    # `set_splitting_ops_for_v1`: sequence parallelism takes whole graphs from 0.20.2 to 0.31.0, for large models.
    ((0, 19, 1), ["-tp", "2", *passes(enable_sp=True)], LARGE, "FULL_AND_PIECEWISE", "default"),
    ((0, 20, 2), ["-tp", "2", *passes(enable_sp=True)], LARGE, "FULL", "sequence-parallel"),
    ((0, 31, 0), ["-tp", "2", *passes(fuse_gemm_comms=True)], LARGE, "FULL", "sequence-parallel"),
    ((0, 31, 0), ["-tp", "2", *passes(enable_sp=True)], LLAMA, "FULL_AND_PIECEWISE", "default"),
    ((0, 31, 0), ["-tp", "2", *passes(enable_sp=True, sp_min_token_num=64)], LLAMA, "FULL", "sequence-parallel"),
    ((0, 31, 0), passes(enable_sp=True), LARGE, "FULL_AND_PIECEWISE", "default"),
    # `check_and_update_config` of platforms/cuda.py until 0.12.0, then `set_splitting_ops_for_v1`; of MoE models from 0.14.1 on.
    ((0, 11, 2), [*SPREAD, "--all2all-backend", "deepep_high_throughput"], LLAMA, "NONE", "deepep-high-throughput"),
    ((0, 26, 0), [*SPREAD, "--all2all-backend", "deepep_high_throughput"], MOE, "NONE", "deepep-high-throughput"),
    ((0, 26, 0), [*SPREAD, "--all2all-backend", "deepep_high_throughput"], LLAMA, "FULL_AND_PIECEWISE", "default"),
    ((0, 26, 0), ["--all2all-backend", "deepep_high_throughput"], MOE, "FULL_AND_PIECEWISE", "default"),
    ((0, 31, 0), [*SPREAD, "--all2all-backend", "moonep"], MOE, "NONE", "moonep"),
    ((0, 9, 0), SPREAD, LLAMA, "NONE", "data-parallel"),
    ((0, 9, 2), SPREAD, LLAMA, "PIECEWISE", "default"),
    # `_maybe_override_dynamic_sd_cudagraph_mode`, 0.24.0 on; model runner V2 and data parallel ranks are left alone later.
    ((0, 24, 0), ["--speculative-config", json.dumps(DYNAMIC)], MOE, "PIECEWISE", "dynamic-speculation"),
    ((0, 26, 0), ["--speculative-config", json.dumps(DYNAMIC)], MOE, "PIECEWISE", "dynamic-speculation"),
    ((0, 26, 0), [*SPREAD, "--speculative-config", json.dumps(DYNAMIC)], MOE, "FULL_AND_PIECEWISE", "default"),
    ((0, 30, 0), ["--speculative-config", json.dumps(DYNAMIC)], MOE, "FULL_AND_PIECEWISE", "default"),
    # `_cudagraph_support` of mamba_attn.py and gdn_attn.py: no mixed batches, as with a backend that cannot hold them.
    ((0, 26, 0), ["-cc.cudagraph_mode=FULL"], JAMBA, "FULL_AND_PIECEWISE", "rewrite:backend-support"),
    ((0, 26, 0), ["-cc.cudagraph_mode=FULL"], NEXT, "FULL_AND_PIECEWISE", "rewrite:backend-support"),
    # `get_cudagraph_support` of flashinfer.py from 0.28.0: one token a sequence with decode context ranks, so no drafts.
    ((0, 30, 0), [*FLASHINFER[:2], *EAGLE], LLAMA, "FULL_AND_PIECEWISE", "default"),
    ((0, 30, 0), [*FLASHINFER, *EAGLE], LLAMA, "PIECEWISE", "rewrite:backend-support"),
    # models/config.py `MambaModelConfig` of 0.10.2: decode graphs by default, where others have piecewise ones.
    ((0, 10, 2), [], JAMBA, "FULL_AND_PIECEWISE", "recurrent-layers"),
    ((0, 10, 2), ["-O.cudagraph_mode=PIECEWISE"], JAMBA, "PIECEWISE", "flag"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "words", "model", "mode", "origin"), ROWS)
def test_the_mode_that_runs(version, words, model, mode, origin):
    found = resolve(version, words, model)
    assert found.values["cudagraph_mode"] == mode
    assert found.origins["cudagraph_mode"].removeprefix("rewrite:") == origin.removeprefix("rewrite:")
    rewritten = origin not in ("default", "flag", "level")
    assert bool(told(found)) == rewritten
    assert not rewritten or mode in told(found)[-1][1]


def test_every_obstacle_that_cuda_can_meet_is_met_above():
    from advisor.engine.rules.graph_obstacles import OBSTACLES

    assert {obstacle.rule for obstacle in OBSTACLES} <= {row[4] for row in ROWS}


def test_the_variable_of_older_releases_names_the_kernels():
    env = {"VLLM_ALL2ALL_BACKEND": "deepep_high_throughput"}
    assert resolve((0, 10, 0), SPREAD, MOE, env).values["cudagraph_mode"] == "NONE"
    assert resolve((0, 11, 0), SPREAD, MOE, env).values["cudagraph_mode"] == "NONE"
    # 0.10.2 gets along with piecewise graphs, which are its default: only others are changed.
    assert resolve((0, 10, 2), SPREAD, MOE, env).origins["cudagraph_mode"] == "default"
    full = resolve((0, 10, 2), [*SPREAD, "-O.cudagraph_mode=FULL"], MOE, env)
    assert full.values["cudagraph_mode"] == "PIECEWISE"
    beside_the_flag = [*SPREAD, "--all2all-backend", "naive"]
    assert resolve((0, 13, 0), beside_the_flag, MOE, env).values["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert resolve((0, 15, 1), beside_the_flag, MOE, env).values["cudagraph_mode"] == "NONE"
    assert resolve((0, 16, 0), SPREAD, MOE, env).values["cudagraph_mode"] == "FULL_AND_PIECEWISE"


def test_rocm_has_no_full_graphs_with_context_parallelism():
    around = {"platform": "rocm", "compute_capability": None}
    decode, prefill = ["-tp", "2", "-dcp", "2"], ["-pcp", "2"]
    for version, words, mode in [
        ((0, 13, 0), decode, "PIECEWISE"),
        ((0, 28, 0), decode, "PIECEWISE"),
        ((0, 29, 0), decode, "FULL_AND_PIECEWISE"),
        ((0, 29, 0), prefill, "PIECEWISE"),
    ]:
        assert resolve(version, words, **around).values["cudagraph_mode"] == mode, (version, words)
    found = resolve((0, 26, 0), [], **around)
    assert found.values["attention_backend"] is None
    assert any("rocm" in sentence for sentence in found.assumed)
    assert not any("GPU is not given" in sentence for sentence in found.assumed)


def test_a_default_that_everybody_gets_is_no_warning_and_an_own_wish_is():
    (default,) = told(resolve((0, 26, 0), ["--runner", "pooling"]))
    (wish,) = told(resolve((0, 26, 0), ["--runner", "pooling", "-cc.cudagraph_mode=FULL_DECODE_ONLY"]))
    (lost,) = told(resolve((0, 26, 0), [*SPREAD, "--all2all-backend", "deepep_high_throughput"], MOE))
    assert (default[0], wish[0], lost[0]) == ("info", "warning", "warning")
    assert wish[1].startswith("FULL_DECODE_ONLY becomes PIECEWISE: pooling models")


def test_whole_graphs_on_a_backend_that_cannot_hold_mixed_batches():
    """Fusion leaves FULL without pieces, and FLASHINFER on Hopper holds decode batches only: FULL_DECODE_ONLY is left."""
    found = resolve((0, 26, 0), [*passes(fuse_attn_quant=True), "--attention-backend", "FLASHINFER"])
    assert found.values["cudagraph_mode_in_config"] == "FULL"
    assert found.values["cudagraph_mode"] == "FULL_DECODE_ONLY"
    partition = {"pass_config": {"fuse_attn_quant": True}, "use_inductor_graph_partition": True}
    kept = resolve((0, 26, 0), ["--compilation-config", json.dumps(partition)])
    assert kept.values["cudagraph_mode"] == "FULL_AND_PIECEWISE"


def test_sequence_parallelism_that_is_dropped_leaves_the_capture_list_whole():
    words = ["-tp", "4", "--max-num-seqs", "8", *passes(enable_sp=True)]
    assert resolve((0, 26, 0), words).values["cudagraph_capture_sizes"] == [1, 2, 4, 8, 16]
    assert resolve((0, 26, 0), words, LARGE).values["cudagraph_capture_sizes"] == [4, 8, 16]
    assert resolve((0, 16, 0), words).values["cudagraph_capture_sizes"] == [4, 8, 16]


@pytest.mark.parametrize(
    ("version", "capability", "hidden", "on"),
    [
        ((0, 17, 1), (9, 0), 8192, True),
        ((0, 17, 1), (9, 0), 8191, False),
        ((0, 17, 1), (9, 0), None, True),
        ((0, 20, 2), (10, 0), 16384, False),  # no threshold for it yet
        ((0, 21, 0), (10, 0), 8192, True),
        ((0, 26, 0), (8, 0), 16384, False),  # none for an A100
        ((0, 16, 0), (8, 0), 1024, True),
        ((0, 32, 0), (9, 0), 8192, False),
    ],
)
def test_where_sequence_parallelism_is_on(version, capability, hidden, on):
    assert sequence_parallel_on(True, 2, None, hidden, capability, version) is on
    assert sequence_parallel_on(True, 1, None, hidden, capability, version) is False
    assert sequence_parallel_on(False, 2, None, hidden, capability, version) is False


# ---------------------------------------------------------------- batch defaults of a deployment


def test_the_default_batch_of_experts_whose_kernels_take_small_batches():
    """`use_batched_dp_moe` (config/parallel.py), 0.20.2 on: 256 tokens, and as many sequences at most."""
    words = [*SPREAD, "--all2all-backend", "deepep_low_latency", "--enable-expert-parallel"]
    values = resolve((0, 26, 0), words, MOE).values
    assert (values["max_num_seqs"], values["max_num_batched_tokens"]) == (256, 256)
    assert resolve((0, 19, 1), words, MOE).values["max_num_batched_tokens"] == 8192
    assert resolve((0, 26, 0), words[:-1], MOE).values["max_num_batched_tokens"] == 8192
    assert resolve((0, 26, 0), [*words, "--max-num-batched-tokens", "4096"], MOE).values["max_num_batched_tokens"] == 4096


def test_a_prompt_that_fits_no_batch_is_refused():
    """`SchedulerConfig.verify_max_model_len` (`_verify_args` in 0.9.0): every release."""
    words = ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048", "--max-model-len", "8192"]
    for version in ((0, 9, 0), (0, 26, 0), (0, 33, 0)):
        found = resolve(version, words)
        assert "batched-tokens-below-length" in {one.code for one in found.findings} and found.values["refused"]
    assert not resolve((0, 26, 0), words[1:]).values["refused"]
    assert not resolve((0, 26, 0), [*words[:-1], "2048"]).values["refused"]


def test_batches_that_are_cut_up_need_kernels_that_can():
    """`VllmConfig.__post_init__`, "Microbatching currently only supports"."""

    def refused(version, words, env=None):
        return "dbo-needs-deepep" in {one.code for one in resolve(version, words, MOE, env).findings}

    assert refused((0, 26, 0), ["--enable-dbo"]) and refused((0, 14, 1), ["--ubatch-size", "2"])
    assert not refused((0, 26, 0), ["--ubatch-size", "0"]) and not refused((0, 26, 0), ["--no-enable-dbo"])
    for backend, version, wrong in [
        ("deepep_low_latency", (0, 11, 2), False), ("nixl_ep", (0, 24, 0), False), ("allgather_reducescatter", (0, 24, 0), True),
    ]:  # fmt: skip
        assert refused(version, ["--enable-dbo", "--all2all-backend", backend]) is wrong
    assert not refused((0, 11, 0), ["--enable-dbo"], {"VLLM_ALL2ALL_BACKEND": "deepep_low_latency"})


# ---------------------------------------------------------------- what a model is


@pytest.mark.parametrize(
    ("options", "architecture", "version", "pooling"),
    [
        ({}, "LlamaForCausalLM", (0, 26, 0), False),
        ({}, "LlamaModel", (0, 26, 0), True),
        ({}, "ChatGLMModel", (0, 26, 0), False),
        ({}, "InternVLChatModel", (0, 26, 0), False),
        ({}, "GPT2LMHeadModel", (0, 26, 0), False),
        ({}, "Qwen2ForSequenceClassification", (0, 26, 0), True),
        ({}, "Qwen2ForProcessRewardModel", (0, 26, 0), True),
        ({}, "T5ForConditionalGeneration", (0, 26, 0), False),
        ({"--runner": "generate"}, "LlamaModel", (0, 26, 0), False),
        ({"--task": "embed"}, "LlamaForCausalLM", (0, 9, 0), True),
        ({"--task": "generate"}, "LlamaModel", (0, 9, 0), False),
        ({"--convert": "embed"}, "LlamaForCausalLM", (0, 21, 0), False),  # `_get_runner_type` does not ask for it yet
        ({"--convert": "embed"}, "LlamaForCausalLM", (0, 22, 1), True),
        ({"--convert": "none"}, "LlamaForCausalLM", (0, 26, 0), False),
    ],
)
def test_what_serves_no_text(options, architecture, version, pooling):
    assert pools(options, version, dataclasses.replace(LLAMA, architecture=architecture)) is pooling


def test_an_unknown_model_serves_text():
    assert pools({}, (0, 26, 0), None) is False
    read = read_command(["vllm", "serve", "a/b"], (0, 26, 0))
    assert read_deployment(read.options, {}, (0, 26, 0), None).experts is None


BASE = {"architectures": ["X"], "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, None),
        ({"mamba_d_state": 16, "attn_layer_period": 8}, "mamba"),  # Jamba
        ({"state_size": 16}, "mamba"),  # Mamba
        ({"ssm_state_size": 128, "hybrid_override_pattern": "M-M*-"}, "mamba"),  # Nemotron-H
        ({"mamba_d_state": 128, "layer_types": ["mamba", "attention"]}, "mamba"),  # Granite 4
        ({"mamba_d_state": 128, "layer_types": ["attention", "attention"]}, None),  # Granite 4 micro, which has none
        ({"linear_num_value_heads": 32, "layer_types": ["linear_attention", "full_attention"]}, "gated-delta"),  # Qwen3-Next
        ({"text_config": {"linear_num_value_heads": 32}}, "gated-delta"),  # Qwen3.5
        ({"linear_attn_config": {"kda_layers": [1, 2, 3]}}, "gated-delta"),  # Kimi-Linear
        ({"attn_type_list": [0, 0, 1]}, "linear"),  # MiniMax-Text-01
        ({"attn_type_list": [1, 1, 1]}, None),  # MiniMax-M2
        ({"conv_L_cache": 3, "layer_types": ["conv", "full_attention"]}, "short-conv"),  # LFM2
        ({"layer_types": ["sliding_attention", "full_attention"]}, None),  # Gemma 3, gpt-oss
    ],
)
def test_layers_that_keep_a_state(config, kind):
    assert facts_from_config("m", {**BASE, **config}).recurrent == kind


def test_encoder_decoder_models_say_so_themselves():
    assert facts_from_config("m", {**BASE, "is_encoder_decoder": True}).encoder_decoder is True
    assert facts_from_config("m", BASE).encoder_decoder is False


def test_the_least_of_backend_and_recurrent_layers():
    assert with_recurrent("ALWAYS", "mamba", (0, 16, 0)) == "UNIFORM_SINGLE_TOKEN_DECODE"
    assert with_recurrent("ALWAYS", "mamba", (0, 17, 1)) == "UNIFORM_BATCH"
    assert with_recurrent("UNIFORM_SINGLE_TOKEN_DECODE", "gated-delta", (0, 26, 0)) == "UNIFORM_SINGLE_TOKEN_DECODE"
    assert with_recurrent("ALWAYS", "linear", (0, 11, 0)) == "NEVER"
    assert with_recurrent("ALWAYS", "short-conv", (0, 11, 2)) == "UNIFORM_SINGLE_TOKEN_DECODE"
    assert with_recurrent("UNKNOWN", "mamba", (0, 26, 0)) == "UNKNOWN"
    assert with_recurrent("ALWAYS", None, (0, 26, 0)) == "ALWAYS"
