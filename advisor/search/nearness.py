"""How near another measurement is to what is tuned now: model, GPU, load and vLLM. Pure.

1 is the same, 0 tells nothing. The four shares are multiplied: who differs in one of them is as far away as that one says. The
shares are choices, not measurements; what they are for is an order, and how much to allow for the difference.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

NEAR = 0.4  # below, figures are not carried over
_SAME_MODEL, _SAME_ARCHITECTURE, _SAME_FAMILY, _ANOTHER = 1.0, 0.9, 0.7, 0.4
_SAME_GENERATION, _SAME_VENDOR = 0.7, 0.4
_SIZE_UNKNOWN = 0.7
_SIZE_FOLDS = 8.0  # a model so many times as large is worth 1/e
_LOAD_FOLDS = 16.0  # the same for prompt, answer and load together
_OTHER_RELEASE = 0.9


@dataclass(frozen=True)
class Situation:
    """What a measurement was made of. `model`: a name, whose size is read from it (8B, 0.6B)."""

    model: str
    config_hash: str
    architecture: str
    gpu: str  # slug
    capability: str | None
    input_tokens: int
    output_tokens: int
    concurrency: int | None
    rate: float | None
    vllm: str


def nearness(here: Situation, there: Situation) -> tuple[float, tuple[str, ...]]:
    """(0 to 1, what is the same or near, in words)."""
    shares = (_model(here, there), _gpu(here, there), _load(here, there), _release(here, there))
    words = tuple(word for _, word in shares if word)
    return math.prod(share for share, _ in shares), words


def _model(here: Situation, there: Situation) -> tuple[float, str]:
    if here.config_hash == there.config_hash:
        return _SAME_MODEL, "same model"
    size = _size_share(size_of(here.model), size_of(there.model))
    if here.architecture == there.architecture:
        return _SAME_ARCHITECTURE * size, "same architecture"
    if _family(here.architecture) == _family(there.architecture):
        return _SAME_FAMILY * size, "same family"
    return _ANOTHER * size, ""


def _gpu(here: Situation, there: Situation) -> tuple[float, str]:
    if here.gpu == there.gpu:
        return 1.0, "same GPU"
    if "cpu" in (here.gpu, there.gpu) or here.capability is None or there.capability is None:
        return 0.0, ""
    if here.capability == there.capability:
        return _SAME_GENERATION, f"GPU of the same generation, {there.gpu}"
    return _SAME_VENDOR, there.gpu


def _load(here: Situation, there: Situation) -> tuple[float, str]:
    if (here.concurrency is None) != (there.concurrency is None):
        return 0.0, ""
    pairs = [(here.input_tokens, there.input_tokens), (here.output_tokens, there.output_tokens)]
    pairs.append((here.concurrency or here.rate or 1, there.concurrency or there.rate or 1))
    folds = sum(abs(math.log(max(one, 0.01) / max(other, 0.01))) for one, other in pairs)
    return math.exp(-folds / math.log(_LOAD_FOLDS)), "same load" if folds < 0.01 else ""


def _release(here: Situation, there: Situation) -> tuple[float, str]:
    same = here.vllm.split(".")[:2] == there.vllm.split(".")[:2]
    return (1.0, "") if same else (_OTHER_RELEASE, f"vLLM {there.vllm}")


def size_of(name: str) -> float | None:
    """Billions of parameters that a name states: `Llama-3.1-8B` -> 8.0."""
    found = re.findall(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)[bB](?![A-Za-z])", name)
    return float(found[0]) if found else None


def _size_share(one: float | None, other: float | None) -> float:
    if not one or not other:
        return _SIZE_UNKNOWN
    return math.exp(-abs(math.log(one / other)) / math.log(_SIZE_FOLDS))


def _family(architecture: str) -> str:
    """`LlamaForCausalLM` -> `llama`; `Qwen3MoeForCausalLM` -> `qwen3moe`: experts change what a batch costs."""
    name = re.sub(r"For[A-Z].*$", "", architecture)
    return re.sub(r"(?<=[a-z])\d+(?![A-Za-z])", "", name).lower()
