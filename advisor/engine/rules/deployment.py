"""What a command says of how a model is used and spread, as far as it changes which CUDA graphs run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.options import COMPILATION, ServeOptions
from advisor.engine.rules.backend_table import Version
from advisor.engine.rules.requested import SPECULATIVE, Problem, Reader
from advisor.records import ModelFacts

KV_TRANSFER = "--kv-transfer-config"
_ALL2ALL_ENV = "VLLM_ALL2ALL_BACKEND"
_ALL2ALL_FLAG_SINCE, _ALL2ALL_ENV_WINS_SINCE, _ALL2ALL_ENV_GONE = (0, 11, 2), (0, 14, 1), (0, 16, 0)
_CONVERT_DECIDES_SINCE = (0, 22, 1)  # `--convert embed` alone makes a pooling server
_POOLING_TASKS = ("embed", "embedding", "classify", "score", "reward", "encode", "token_embed", "token_classify")
# What an architecture's name says where nobody says more (`_SUFFIX_TO_DEFAULTS` of config/model.py, 0.11.0 to 0.33.0): the
# first one that fits. The names that end with Model and generate are those of the text and multimodal registry of 0.26.0.
_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
_GENERATING_MODELS = ("ChatGLMModel", "MiDashengLMModel", "MossAudioModel", "UltravoxModel")
_POOLS = (
    "ForTextEncoding", "ForSequenceClassification", "ForTokenClassification", "ForAudioClassification",
    "ForImageClassification", "ForVideoClassification", "ForRewardModeling", "Model",
)  # fmt: skip


@dataclass(frozen=True)
class Deployment:
    """Sizes are numbers of ranks. `all2all` is None where vLLM chooses; `sequence_parallel_from` tokens, None where it does."""

    data_parallel: int = 1
    decode_context_parallel: int = 1
    prefill_context_parallel: int = 1
    expert_parallel: bool = False
    all2all: str | None = None
    overlapping: bool = False  # batches are cut up so that communication overlaps (--enable-dbo, --ubatch-size)
    pooling: bool = False
    encoder_decoder: bool = False
    experts: bool | None = None  # None: the model is not known
    layerwise_transfer: bool = False  # of the KV cache, by LMCache
    attention_fusion: bool = False
    graph_partition: bool = False
    splitting_given: bool = False
    dynamic_speculation: bool = False
    sequence_parallel_from: int | None = None

    @property
    def batched_experts(self) -> bool:
        """`use_batched_dp_moe`: the kernels of these backends take small batches only, and the default batch is small then."""
        kernels = self.all2all in ("deepep_low_latency", "nixl_ep")
        return kernels and self.expert_parallel and self.data_parallel > 1


def read_deployment(
    options: ServeOptions, env: Mapping[str, str], version: Version, model: ModelFacts | None
) -> Deployment:
    """From the options as read_request takes them. What is wrong with a value is said there."""
    reader = Reader(options, version)
    compilation = reader.config(COMPILATION)
    passes = compilation.get("pass_config") if isinstance(compilation.get("pass_config"), Mapping) else {}
    least = passes.get("sp_min_token_num")
    return Deployment(
        data_parallel=reader.number("--data-parallel-size") or 1,
        decode_context_parallel=reader.number("--decode-context-parallel-size") or 1,
        prefill_context_parallel=reader.number("--prefill-context-parallel-size") or 1,
        expert_parallel=reader.switch("--enable-expert-parallel") is True,
        all2all=_all2all(reader.options, env, version),
        overlapping=reader.switch("--enable-dbo") is True or (reader.number("--ubatch-size", zero=True) or 0) > 1,
        pooling=pools(reader.options, version, model),
        encoder_decoder=bool(model and model.encoder_decoder),
        experts=bool(model.experts) if model else None,
        layerwise_transfer=_layerwise(reader.config(KV_TRANSFER)),
        attention_fusion=any(passes.get(key) is True for key in ("fuse_attn_quant", "enable_attn_fusion")),
        graph_partition=compilation.get("use_inductor_graph_partition") is True,
        splitting_given=compilation.get("splitting_ops") is not None,
        dynamic_speculation=bool(reader.config(SPECULATIVE).get("num_speculative_tokens_per_batch_size")),
        sequence_parallel_from=least if isinstance(least, int) else None,
    )


def batches_in_halves_refused(spread: Deployment, version: Version) -> Problem | None:
    """`VllmConfig.__post_init__` asserts the kernels that can do it: from 0.11.0, nixl_ep among them from 0.24.0."""
    able = ("deepep_low_latency", "deepep_high_throughput", *(("nixl_ep",) if version >= (0, 24, 0) else ()))
    if not spread.overlapping or version < (0, 11, 0) or spread.all2all in able:
        return None
    given = spread.all2all or "the default"
    message = f"vLLM refuses it: --enable-dbo needs {' or '.join(able)} as --all2all-backend, not {given}"
    return Problem("dbo-needs-deepep", message, f"--all2all-backend {able[0]}")


def pools(options: Mapping[str, Any], version: Version, model: ModelFacts | None) -> bool:
    """Whether it serves embeddings, classes or scores instead of text, as `ModelConfig._get_runner_type` decides.

    Not seen here: a sentence-transformers folder whose architecture generates, known by its modules.json.
    """
    runner, task, convert = (options.get(name) for name in ("--runner", "--task", "--convert"))
    if runner not in (None, "auto"):
        return runner == "pooling"
    if task not in (None, "auto"):
        return task in _POOLING_TASKS
    if version >= _CONVERT_DECIDES_SINCE and convert not in (None, "auto", "none"):
        return True
    name = model.architecture if model else ""
    return name not in _GENERATING_MODELS and not name.endswith(_GENERATES) and name.endswith(_POOLS)


def _all2all(options: Mapping[str, Any], env: Mapping[str, str], version: Version) -> str | None:
    """From 0.11.2 a flag; the variable counts until 0.15.1, and in 0.14 and 0.15 even beside the flag."""
    flag = options.get("--all2all-backend") if version >= _ALL2ALL_FLAG_SINCE else None
    variable = env.get(_ALL2ALL_ENV) if version < _ALL2ALL_ENV_GONE else None
    first, second = (variable, flag) if version >= _ALL2ALL_ENV_WINS_SINCE else (flag, variable)
    return first or second


def _layerwise(transfer: Mapping[str, Any]) -> bool:
    """`requires_piecewise_for_cudagraph` of the connectors: LMCache with use_layerwise, alone or among several."""
    extra = transfer.get("kv_connector_extra_config")
    if not isinstance(extra, Mapping) or transfer.get("kv_role") is None:
        return False
    if transfer.get("kv_connector") == "MultiConnector":
        inner = extra.get("connectors")
        return isinstance(inner, list) and any(_layerwise(one) for one in inner if isinstance(one, Mapping))
    return transfer.get("kv_connector") == "LMCacheConnectorV1" and bool(extra.get("use_layerwise"))
