"""Options that another vLLM version replaced with something else, and what to write there: data with small translations.

How to extend: one more entry of MOVES. `until` is the first release read that no longer has the option; the entry counts only
where the version asked for lacks it. Facts: the deprecation texts and the conversions in the sources of the release before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.reading.option_tables import option_status
from advisor.engine.writing.spelling_table import OPTIMIZATION, Version


@dataclass(frozen=True)
class Moved:
    """What stands for an option: other settings (none: the new version does it by itself), or why nothing does."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    lost: str = ""


def _to(
    option: str, key: str | None = None, convert: Callable[[Any], Any] = lambda value: value
) -> Callable[[Any], Moved]:
    def move(value: Any) -> Moved:
        given = convert(value)
        return Moved({option: {key: given} if key else given}, f"it is {option}{'.' + key if key else ''} there")

    return move


def _dropped(reason: str) -> Callable[[Any], Moved]:
    return lambda _value: Moved(reason=reason)


def _gone(reason: str) -> Callable[[Any], Moved]:
    return lambda _value: Moved(lost=reason)


def _task(value: Any) -> Moved:
    """`--task` named what is `--runner` and `--convert` since."""
    pooling = {"embed": "embed", "embedding": "embed", "classify": "classify", "score": "classify", "reward": "reward"}
    if value == "auto":
        return Moved(reason="automatic is the default there")
    if value in ("generate", "draft"):
        return Moved({"--runner": value}, "it is --runner there")
    if value in pooling:
        return Moved({"--runner": "pooling", "--convert": pooling[value]}, "it is --runner and --convert there")
    return Moved(lost=f"no equivalent is known for the task {value}")


_STRUCTURED, _EPLB = "--structured-outputs-config", "--eplb-config"
_V0 = _gone("it belonged to the V0 engine, which was removed")
MOVES: dict[str, Callable[[Any], Moved]] = {
    "--task": _task,
    "--guided-decoding-backend": _to(_STRUCTURED, "backend"),
    "--guided-decoding-disable-fallback": _to(_STRUCTURED, "disable_fallback"),
    "--guided-decoding-disable-any-whitespace": _to(_STRUCTURED, "disable_any_whitespace"),
    "--guided-decoding-disable-additional-properties": _to(_STRUCTURED, "disable_additional_properties"),
    "--override-pooler-config": _to("--pooler-config"),
    "--num-redundant-experts": _to(_EPLB, "num_redundant_experts", int),
    "--eplb-window-size": _to(_EPLB, "window_size", int),
    "--eplb-step-interval": _to(_EPLB, "step_interval", int),
    "--eplb-log-balancedness": _to(_EPLB, "log_balancedness"),
    "--disable-log-requests": _dropped("requests are not logged by default there"),
    "--enable-reasoning": _dropped("--reasoning-parser alone turns it on there"),
    "--disable-mm-preprocessor-cache": _to("--mm-processor-cache-gb", convert=lambda _value: 0),
    "--enable-multimodal-encoder-data-parallel": _to("--mm-encoder-tp-mode", convert=lambda _value: "data"),
    "--expand-tools-even-if-tool-choice-none": _dropped("tools are in the prompt by default there"),
    "--rope-scaling": _gone("write it into --hf-overrides, in the form that the model's config.json has"),
    "--rope-theta": _gone("write it into --hf-overrides, in the form that the model's config.json has"),
    "--max-seq-len-to-capture": _gone("since then capture sizes count the tokens of a batch: see --cudagraph-capture-sizes"),
    "--device": _gone("vLLM finds the device by itself"),
    "--swap-space": _gone("the V1 engine does not swap; --kv-offloading-size keeps KV blocks in the host's memory"),
    "--num-scheduler-steps": _V0,
    "--multi-step-stream-outputs": _V0,
    "--use-v2-block-manager": _V0,
    "--num-lookahead-slots": _V0,
    "--scheduler-delay-factor": _V0,
    "--preemption-mode": _V0,
    "--disable-async-output-proc": _V0,
}
# Variables that say what is the only way in versions that no longer read them.
NEEDLESS = {("VLLM_USE_V1", "1"): "V1 is the only engine there"}
# Each optimization level as single settings, for the versions before there were levels (the tables of 0.12.0).
_LEVELS: dict[int, dict[str, Any]] = {
    0: {"enforce_eager": True},
    1: {"compilation_mode": "VLLM_COMPILE", "cudagraph_mode": "PIECEWISE"},
    2: {"compilation_mode": "VLLM_COMPILE", "cudagraph_mode": "FULL_AND_PIECEWISE"},
    3: {"compilation_mode": "VLLM_COMPILE", "cudagraph_mode": "FULL_AND_PIECEWISE"},
}


def moved(name: str, value: Any, new: Version) -> Moved | None:
    """What stands for a setting in a version that lacks it; None where it is carried over as it is."""
    if name in ("optimization_level", OPTIMIZATION) and new < (0, 12):
        settings = _LEVELS.get(value if isinstance(value, int) else -1)
        return Moved(settings, "there are no levels there; these are its parts") if settings else None
    if name == "performance_mode" and new < (0, 17, 1) and value != "balanced":
        return Moved(lost=f"performance modes need 0.17.1 or newer; {_MODE_PARTS.get(value, 'nothing stands for it')}")
    if name in MOVES and not option_status(name, new).exists:
        if value is False:
            return Moved(reason="off is the default there")
        return MOVES[name](value)
    return None


_MODE_PARTS = {
    "interactivity": "capture sizes 1 to 32 one by one come near to it",
    "throughput": "max_num_seqs and max_num_batched_tokens at twice their defaults come near to it",
}
