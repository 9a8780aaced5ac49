"""What is compared: five ways to run the same model, and the batch sizes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.options import parse_options
from advisor.engine.render import fixed_by
from advisor.errors import InputError

DEFAULT_CONTEXT = 512  # tokens of a request in the KV cache
_COMPARED = {"enforce_eager", "compilation_mode", "cudagraph_mode"}
_PREFILLS = (128, 512, 2048, 8192, 32768)


@dataclass(frozen=True)
class Mode:
    """One optimisation. In vLLM piecewise graphs need compilation, which is what cuts the model into pieces."""

    name: str
    title: str
    settings: Mapping[str, Any]


MODES = (
    Mode("none", "no optimisation", {"enforce_eager": True}),
    Mode("compile", "compile only", {"compilation_mode": "VLLM_COMPILE", "cudagraph_mode": "NONE"}),
    Mode("full", "full graphs only", {"compilation_mode": "NONE", "cudagraph_mode": "FULL"}),
    Mode("piecewise", "compile, piecewise graphs", {"compilation_mode": "VLLM_COMPILE", "cudagraph_mode": "PIECEWISE"}),
    Mode("both", "compile, full graphs", {"compilation_mode": "VLLM_COMPILE", "cudagraph_mode": "FULL_AND_PIECEWISE"}),
)
TITLES = {mode.name: mode.title for mode in MODES}


@dataclass(frozen=True)
class Planned:
    """A mode as the installed vLLM resolves it; `same_as` or `refused` say why it is not run."""

    mode: Mode
    resolved: Mapping[str, Any] = field(default_factory=dict)
    same_as: str | None = None  # name of an earlier mode
    refused: str | None = None

    @property
    def reason(self) -> str | None:
        if self.same_as:
            return f"vLLM runs the same as for '{TITLES[self.same_as]}' here: {what_runs(self.resolved)}"
        return f"vLLM refuses it: {self.refused}" if self.refused else None


def what_runs(resolved: Mapping[str, Any]) -> str:
    """`no compilation, no graphs`, `DYNAMO_TRACE_ONCE, FULL graphs`."""
    compilation, graphs = resolved.get("compilation_mode") or "NONE", resolved.get("cudagraph_mode") or "NONE"
    said = "no compilation" if compilation == "NONE" else compilation
    return f"{said}, {'no' if graphs == 'NONE' else graphs} graphs"


def plan(modes: Sequence[Mode], answers: Mapping[str, Mapping[str, Any]]) -> list[Planned]:
    """`answers`: what advisor/target/resolve.py says to each mode. Modes that come to the same are run once."""
    planned: list[Planned] = []
    for mode in modes:
        answer = answers[mode.name]
        if not answer["ok"]:
            planned.append(Planned(mode, refused=answer["error"]))
            continue
        resolved = answer["resolved"]
        same = next(
            (item.mode.name for item in planned if not item.reason and _runs(item.resolved) == _runs(resolved)), None
        )
        planned.append(Planned(mode, resolved, same_as=same))
    return planned


def _runs(resolved: Mapping[str, Any]) -> tuple[Any, Any]:
    return resolved.get("compilation_mode") or "NONE", resolved.get("cudagraph_mode") or "NONE"


def parse_modes(text: str | None) -> tuple[Mode, ...]:
    """`none,both`; all without a word. Raises InputError."""
    if not text:
        return MODES
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in TITLES]:
        raise InputError(f"--modes: {unknown[0]!r} is not a mode", f"with commas, any of {', '.join(TITLES)}")
    return tuple(mode for mode in MODES if mode.name in names)


def check_not_fixed(serve_args: Sequence[str], env: Mapping[str, str], version: str) -> None:
    """Raises InputError where the person's own arguments decide what is compared here."""
    if fixed := sorted(_COMPARED & fixed_by(parse_options(serve_args), env, version)):
        raise InputError(
            f"--serve-args decides {', '.join(fixed)}, which is what the modes differ in",
            "leave it out, and choose modes with --modes",
        )


def parse_batch_sizes(text: str | None) -> tuple[int, ...] | None:
    """`1,8,64` in ascending order; None where nothing is said. Raises InputError."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError(f"--batch-sizes {text!r} is not a list of sizes", "numbers of requests with commas: 1,8,64")
    return tuple(sorted({int(word) for word in words}))


def batch_sizes(asked: Sequence[int] | None, limit: int) -> tuple[int, ...]:
    """Powers of two and the limit itself (requests that vLLM serves at once), unless others are asked for."""
    if asked is None:
        return tuple(sorted({*(2**power for power in range(limit.bit_length()) if 2**power <= limit), limit}))
    if asked[-1] > limit:
        raise InputError(
            f"--batch-sizes {asked[-1]} is more than the {limit} requests that vLLM serves at once",
            '--serve-args "--max-num-seqs N" raises it',
        )
    return tuple(asked)


def prefill_lengths(max_batched: int, max_length: int) -> tuple[int, ...]:
    """Prompt lengths (tokens): four times the last one, up to what one step may hold."""
    most = min(max_batched, max_length - 2)
    return tuple(length for length in _PREFILLS if length <= most) or (most,)


def check_context(context: int, steps: int, max_length: int) -> None:
    """Raises InputError where requests of `context` tokens could not decode `steps` more. Half of the steps lie on either side."""
    if not steps // 2 < context <= max_length - steps:
        raise InputError(
            f"--context {context} does not fit: {steps} tokens are decoded around it, and the model length is {max_length}",
            f"between {steps // 2 + 1} and {max_length - steps}",
        )
