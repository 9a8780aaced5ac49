"""Which model runner a vLLM version takes, V1 or V2: they round capture sizes differently.

Read in `VllmConfig.use_v2_model_runner` of 0.20.2 to 0.33.0; before 0.22 V2 ran only when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.engine.rules.backend_table import Version

ENV = "VLLM_USE_V2_MODEL_RUNNER"
# Speculative methods that keep V1, and the first release in which V2 takes them (None: none read). Others run on V2.
_KEEPS_V1: dict[str, Version | None] = {
    "ngram": (0, 32, 0),
    "ngram_gpu": (0, 32, 0),
    "draft_model": (0, 31, 0),
    "suffix": None,
    "medusa": None,
    "mlp_speculator": None,
    "custom_class": None,
}
_STOCK_COMPILE_SINCE = (0, 32, 0)
_NEVER = (10**6,)


@dataclass(frozen=True)
class RunnerEra:
    """Models that get V2 by default: the architectures named, and every dense one where `dense`, all where `everything`."""

    since: Version
    architectures: frozenset[str] = frozenset()
    dense: bool = False
    everything: bool = False
    unquantised_only: bool = False


_MOE = frozenset({"DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "Qwen2MoeForCausalLM"})
ERAS: tuple[RunnerEra, ...] = (
    RunnerEra((0, 9, 0)),
    RunnerEra((0, 22, 1), frozenset({"Qwen3ForCausalLM"}), unquantised_only=True),
    RunnerEra(
        (0, 23, 0), frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"}), unquantised_only=True
    ),
    RunnerEra((0, 24, 0), _MOE | {"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"}),
    RunnerEra((0, 25, 1), _MOE, dense=True),
    RunnerEra((0, 30, 0), everything=True),
)


def runner_v2(
    version: Version,
    env: Mapping[str, str],
    *,
    architecture: str | None,
    experts: bool | None,
    quantised: bool | None = False,
    speculative_method: str | None = None,
    compilation: str | None = None,
) -> bool | None:
    """True for V2, False for V1, None where the model decides and is not known."""
    asked = env.get(ENV)
    if asked is not None and version >= (0, 12, 0):
        return asked.strip().lower() in ("1", "true")
    era = next(entry for entry in reversed(ERAS) if entry.since <= version)
    if speculative_method in _KEEPS_V1 and version < (_KEEPS_V1[speculative_method] or _NEVER):
        return False
    if compilation == "STOCK_TORCH_COMPILE" and version < _STOCK_COMPILE_SINCE:
        return False
    if era.everything:
        return True
    if not era.architectures and not era.dense:
        return False
    return None if architecture is None else _by_model(era, architecture, experts, quantised)


def _by_model(era: RunnerEra, architecture: str, experts: bool | None, quantised: bool | None) -> bool:
    if era.unquantised_only and (experts or quantised):
        return False
    return architecture in era.architectures or (era.dense and not experts)
