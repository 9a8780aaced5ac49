"""Which engine vLLM 0.9.0 to 0.10.2 takes: V1, or the old V0. From 0.11.0 on there is V1 only.

Read in `EngineArgs._is_v1_supported_oracle` and `create_engine_config` of those releases: VLLM_USE_V1=0 asks for V0; without the
variable everything that V1 cannot do leads there too, with a log line at most; with VLLM_USE_V1=1 the same things are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.rules.backend_table import Version
from advisor.engine.rules.deployment import Deployment
from advisor.engine.rules.graph_support import flash_attention_version
from advisor.engine.rules.requested import SPECULATIVE, Reader, Requested
from advisor.records import ModelFacts

GONE_SINCE = (0, 11, 0)
ENV, SWITCH = "VLLM_ATTENTION_BACKEND", "VLLM_USE_V1"
_DRAFTS, _DRAFTS_REFUSED_SINCE = "speculative decoding with a draft model", (0, 10, 0)  # V0 did it before
_NEVER: Version = (10**6,)

_SINCE_0_9_0 = frozenset({
    "FLASH_ATTN_VLLM_V1", "FLASH_ATTN", "PALLAS", "PALLAS_VLLM_V1", "TRITON_ATTN_VLLM_V1", "TRITON_MLA", "FLASHMLA",
    "FLASHINFER", "FLASHINFER_VLLM_V1", "ROCM_AITER_MLA",
})  # fmt: skip
_SINCE_0_9_2 = _SINCE_0_9_0 | {"CUTLASS_MLA_VLLM_V1", "TORCH_SDPA_VLLM_V1", "FLEX_ATTENTION"}
_SINCE_0_10_2 = (_SINCE_0_9_2 - {"CUTLASS_MLA_VLLM_V1"}) | {
    "CUTLASS_MLA", "FLASHMLA_VLLM_V1", "FLASH_ATTN_MLA", "FLASHINFER_MLA", "TREE_ATTN", "XFORMERS_VLLM_V1",
}  # fmt: skip
# Architectures whose class says SupportsV0Only, beside encoder-decoder models: (first release, first one without it, names).
_SINCE: Version = (0, 9, 0)
_OLD_MODELS: tuple[tuple[Version, Version, frozenset[str]], ...] = (
    (_SINCE, (0, 10, 2), frozenset({
        "BertModel", "BloomForCausalLM", "FalconMambaForCausalLM", "GritLM", "GteModel", "GteNewModel", "JambaForCausalLM",
        "JambaForSequenceClassification", "MambaForCausalLM", "MiniMaxText01ForCausalLM", "NomicBertModel",
        "Plamo2ForCausalLM", "RobertaForMaskedLM", "RobertaForSequenceClassification", "RobertaModel",
        "XLMRobertaForSequenceClassification", "XLMRobertaModel",
    })),
    (_SINCE, GONE_SINCE, frozenset({
        "BartForConditionalGeneration", "BartModel", "Florence2ForConditionalGeneration", "MllamaForConditionalGeneration",
    })),
    (_SINCE, (0, 10, 2), frozenset({"WhisperForConditionalGeneration"})),
    (_SINCE, (0, 10, 0), frozenset({"PrithviGeoSpatialMAE"})),
    (_SINCE, (0, 9, 2), frozenset({
        "BambaForCausalLM", "FalconH1ForCausalLM", "GraniteMoeHybridForCausalLM", "Mamba2ForCausalLM",
        "Qwen2ForProcessRewardModel", "Qwen2ForRewardModel", "Zamba2ForCausalLM",
    })),
    ((0, 9, 2), (0, 10, 2), frozenset({
        "BertForSequenceClassification", "MiniMaxM1ForCausalLM", "ModernBertForSequenceClassification",
    })),
    ((0, 10, 0), (0, 10, 2), frozenset({"MiniMaxForCausalLM"})),
    ((0, 10, 0), GONE_SINCE, frozenset({"Phi4FlashForCausalLM"})),
    ((0, 10, 2), GONE_SINCE, frozenset({"DonutForConditionalGeneration", "MBartForConditionalGeneration", "MotifForCausalLM"})),
)  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """`name` is V1 or V0, `origin` as for every value. `reason`: why it is V0. `refusal`: why vLLM stops instead."""

    name: str = "V1"
    origin: str = "default"
    reason: str | None = None
    refusal: str | None = None
    instead: str = ""

    @property
    def old(self) -> bool:
        return self.name == "V0"


@dataclass(frozen=True)
class Command:
    """What decides on the engine."""

    version: Version
    asked: Requested
    reader: Reader
    env: Mapping[str, str]
    spread: Deployment
    capability: tuple[int, int]
    model: ModelFacts | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        return self.reader.options


def engine_of(command: Command, platform: str) -> Engine:
    """The engine that runs on CUDA. Elsewhere only the variable is read: what other platforms default to is not in the rules."""
    version, wish = command.version, command.env.get(SWITCH)
    if version > GONE_SINCE:  # the variable does not exist any more
        return Engine()
    if wish is not None and not re.fullmatch(r"\s*[+-]?\d+\s*", wish):
        return Engine(refusal=f"{SWITCH}={wish} is no whole number", instead=f"{SWITCH}=0 or {SWITCH}=1")
    forced = None if wish is None else int(wish) != 0
    if version == GONE_SINCE:
        gone = f"{SWITCH}={wish} asks for the V0 engine, which is gone: the API server of 0.11.0 stops on it"
        return Engine(refusal=gone, instead=f"leave {SWITCH} out") if forced is False else Engine()
    if forced is False:
        return Engine("V0", "env", f"{SWITCH}={wish} asks for the old engine (V0)", instead=f"leave {SWITCH} out")
    found = _obstacle(command, experimental=not forced) if platform == "cuda" else None
    if found is None:
        return Engine("V1", "env" if forced else "default")
    what, instead = found
    if what == _DRAFTS:
        return Engine("V1", "env" if forced else "default", refusal=f"neither engine does {what}", instead=instead)
    if forced:
        return Engine("V1", "env", refusal=f"{SWITCH}={wish} does not go with {what}", instead=instead)
    return Engine("V0", "rewrite:old-engine", f"{what} is not for the V1 engine: vLLM takes its old one (V0)", instead=instead)


def _obstacle(command: Command, experimental: bool) -> tuple[str, str] | None:
    """(what V1 does not take, what to do instead), the first as in vLLM. `experimental`: what it takes when told to counts too."""
    version = command.version
    for gone, check in _CHECKS:
        if version < gone and (found := check(command)):
            return found
    if experimental and (0, 9, 2) <= version < (0, 10, 2) and command.model and command.model.recurrent:
        return f"a model with {command.model.recurrent} layers", f"{SWITCH}=1, which vLLM calls experimental"
    return None


# ---------------------------------------------------------------- one thing each


def _flags(command: Command) -> tuple[str, str] | None:
    for name, plain, gone in _FLAGS:
        value = command.options.get(name)
        if command.version < gone and value is not None and value is not False and not _same(value, plain):
            return f"{name} {value}" if value is not True else name, f"leave {name} out"
    if command.options.get("--load-format") == "sharded_state":
        return "--load-format sharded_state", "another --load-format"
    return None


def _same(value: Any, plain: float | None) -> bool:
    try:
        return plain is not None and float(value) == plain
    except (TypeError, ValueError):
        return False


# Option -> the value that counts as none, and the first release in which it does not matter.
_FLAGS: tuple[tuple[str, float | None, Version], ...] = (
    ("--logits-processor-pattern", None, _NEVER),
    ("--preemption-mode", None, _NEVER),
    ("--disable-async-output-proc", None, _NEVER),
    ("--num-scheduler-steps", 1, (0, 10, 2)),
    ("--scheduler-delay-factor", 0, _NEVER),
    ("--enable-prompt-adapter", None, (0, 10, 0)),
    ("--enable-prompt-embeds", None, _NEVER),
    ("--max-num-partial-prefills", 1, _NEVER),
    ("--max-long-partial-prefills", 1, _NEVER),
    ("--otlp-traces-endpoint", None, (0, 10, 2)),
    ("--collect-detailed-traces", None, (0, 10, 2)),
)


def _guided(command: Command) -> tuple[str, str] | None:
    name = command.options.get("--guided-decoding-backend")
    able = ("auto", "xgrammar", "guidance", *(("outlines",) if command.version >= (0, 10, 0) else ()))
    return None if name in (None, *able) else (f"--guided-decoding-backend {name}", f"one of {', '.join(able)}")


def _capability(command: Command) -> tuple[str, str] | None:
    if command.capability[0] >= 8:
        return None
    return f"compute capability {'.'.join(map(str, command.capability))}", "a GPU of compute capability 8.0 or more, or vLLM 0.10.2"


def _cache(command: Command) -> tuple[str, str] | None:
    kind = command.asked.kv_cache_dtype
    if kind == "auto" or _cache_supported(command, kind.startswith("fp8")):
        return None
    return f"--kv-cache-dtype {kind}", "leave it out, or use a newer vLLM"


def _cache_supported(command: Command, fp8: bool) -> bool:
    """`is_kv_cache_dtype_supported` of the CUDA platform, and what stood in the oracle before it."""
    version, name = command.version, command.env.get(ENV)
    third = flash_attention_version(version, command.capability, command.asked.flash_attention_version) == 3
    if version < (0, 10, 2):
        blackwell = command.capability == (10, 0) and version >= (0, 10, 0)
        return blackwell or (fp8 and name in (None, "FLASH_ATTN_VLLM_V1") and third and command.capability[0] == 9)
    if command.model and command.model.mla:
        return name in (None, "FLASHMLA", "CUTLASS_MLA") or not fp8
    if command.capability == (10, 0):
        return True
    if name in (None, "FLASH_ATTN_VLLM_V1"):
        return not fp8 or (third and command.capability[0] == 9)
    return name == "FLASHINFER" or (name == "TRITON_ATTN_VLLM_V1" and command.capability >= (8, 9))


def _type(command: Command) -> tuple[str, str] | None:
    given = command.asked.dtype in ("float", "float32")
    return ("--dtype float32", "--dtype bfloat16") if given else None


def _pooling(command: Command) -> tuple[str, str] | None:
    return ("a pooling model", "vLLM 0.9.2 or newer") if command.spread.pooling else None


def _scheduling(command: Command) -> tuple[str, str] | None:
    policy = command.options.get("--scheduling-policy", "fcfs")
    return None if policy == "fcfs" else (f"--scheduling-policy {policy}", "leave it out, or use vLLM 0.9.2")


def _model(command: Command) -> tuple[str, str] | None:
    name = command.model.architecture if command.model else None
    old = any(since <= command.version < gone and name in names for since, gone, names in _OLD_MODELS)
    return (f"the architecture {name}", "a newer vLLM") if old else None


def _speculation(command: Command) -> tuple[str, str] | None:
    given = command.reader.config(SPECULATIVE)
    method, model = given.get("method"), given.get("model")
    able = ("ngram", "[ngram]", "medusa", "eagle", "eagle3", "deepseek_mtp") if method else ("ngram", "[ngram]")
    if not given or (method or model) in able:
        return None
    return f"speculative decoding by {method or model}", "ngram, medusa, eagle or deepseek_mtp, as method"


def _drafts(command: Command) -> tuple[str, str] | None:
    refused = command.version >= _DRAFTS_REFUSED_SINCE and command.reader.config(SPECULATIVE).get("method") == "draft_model"
    return (_DRAFTS, "ngram, medusa, eagle or deepseek_mtp, as method") if refused else None


def _backend(command: Command) -> tuple[str, str] | None:
    name, version = command.env.get(ENV), command.version
    known = _SINCE_0_9_0 if version < (0, 9, 2) else _SINCE_0_9_2 if version < (0, 10, 2) else _SINCE_0_10_2
    if name is None or name in known:
        return None
    return f"{ENV}={name}", "choose a backend of V1, or none"


def _pipeline(command: Command) -> tuple[str, str] | None:
    """0.9.0 wants the executor named; later the default will do."""
    name = command.options.get("--distributed-executor-backend")
    able = ("ray", "mp", "external_launcher", *((None,) if command.version >= (0, 9, 2) else ()))
    if command.asked.pipeline_parallel < 2 or name in able:
        return None
    given = f"--distributed-executor-backend {name}" if name else "no --distributed-executor-backend"
    return f"--pipeline-parallel-size {command.asked.pipeline_parallel} with {given}", "--distributed-executor-backend mp"


# First release without the check -> check, in vLLM's order.
_CHECKS: tuple[tuple[Version, Callable[[Command], tuple[str, str] | None]], ...] = (
    (_NEVER, _flags),
    ((0, 10, 2), _guided),
    ((0, 9, 2), _scheduling),
    ((0, 10, 2), _capability),
    (_NEVER, _cache),
    ((0, 9, 2), _type),
    ((0, 9, 2), _pooling),
    (_NEVER, _model),
    ((0, 10, 0), _speculation),
    (_NEVER, _drafts),
    (_NEVER, _backend),
    (_NEVER, _pipeline),
)
