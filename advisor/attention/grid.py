"""Which steps are measured: phases, batch sizes, contexts; and which of them do not fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.errors import InputError

DECODE, PREFILL, MIXED = "decode", "prefill", "mixed"
PHASES = (DECODE, PREFILL, MIXED)
WARMUP = {
    DECODE: 6,
    PREFILL: 2,
    MIXED: 3,
}  # steps that are not counted; with asynchronous scheduling a step begins one earlier
DEFAULT_STEPS, DEFAULT_CHUNK = 30, 1024
_BATCHES = {DECODE: (1, 16, 64, 256), PREFILL: (1, 4, 16), MIXED: (1, 16, 64, 256)}
_LONGEST = {DECODE: 16384, PREFILL: 8192, MIXED: 16384}
_SHORTER = {DECODE: (32, 4, 1), PREFILL: (16, 4, 1), MIXED: (32, 4, 1)}  # divide the longest
_LEAST_STEPS = 5


@dataclass(frozen=True)
class Cell:
    """Steps of one composition. `context`: tokens in the KV cache of each request that decodes, or of each prompt (prefill)."""

    phase: str
    batch: int
    context: int
    chunk: int | None = None  # tokens of the prompt in a mixed step

    @property
    def key(self) -> tuple[str, int, int]:
        return self.phase, self.batch, self.context


@dataclass(frozen=True)
class Limits:
    """Of the engine, as vLLM resolves the arguments."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int

    @classmethod
    def of(cls, resolved: Mapping[str, Any]) -> Limits:
        return cls(resolved["max_num_seqs"], resolved["max_num_batched_tokens"], resolved["max_model_len"])


@dataclass(frozen=True)
class Wanted:
    """What a person asks for; None: the default."""

    phases: tuple[str, ...] = PHASES
    batch_sizes: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None
    chunk: int = DEFAULT_CHUNK
    steps: int = DEFAULT_STEPS


def steps_of(phase: str, steps: int) -> int:
    """Steps that hold a prompt take longer and vary less: fewer of them are timed."""
    return {DECODE: steps, PREFILL: max(_LEAST_STEPS, steps // 4), MIXED: max(_LEAST_STEPS, steps // 2)}[phase]


def cells(wanted: Wanted, limits: Limits) -> tuple[list[Cell], list[tuple[Cell, str]]]:
    """(those to measure, cheap ones first; those that do not fit, with the reason). Raises InputError where nothing fits."""
    every = [
        Cell(phase, batch, context, wanted.chunk if phase == MIXED else None)
        for phase in wanted.phases
        for batch in wanted.batch_sizes or _batches(phase, limits)
        for context in wanted.contexts or _contexts(phase, limits, wanted.steps)
    ]
    left_out = [(cell, reason) for cell in every if (reason := objection(cell, limits, wanted.steps))]
    out = {cell.key for cell, _ in left_out}
    kept = sorted(
        (cell for cell in every if cell.key not in out), key=lambda cell: (cost(cell, wanted.steps), cell.key)
    )
    if not kept:
        raise InputError(
            f"nothing that could be measured fits: {left_out[0][1] if left_out else 'no phase'}",
            "choose other --batch-sizes and --contexts, or raise the limits in --serve-args",
        )
    return kept, left_out


def objection(cell: Cell, limits: Limits, steps: int) -> str | None:
    """Why a cell does not fit into the engine at all. How much its KV cache holds is known only when it runs."""
    if cell.phase == PREFILL:
        return _prefill_objection(cell, limits)
    around = WARMUP[cell.phase] + steps_of(cell.phase, steps)
    tokens = cell.batch + (cell.chunk or 0)
    seats = cell.batch + (2 if cell.phase == MIXED else 0)  # where steps overlap, two prompts are there at once
    if cell.context <= around:
        return f"{around} tokens are decoded around a context, which must be longer"
    if cell.context + around > limits.max_model_len:
        return f"{around} tokens are decoded around it, and the model length is {limits.max_model_len:,}"
    if cell.chunk and cell.chunk >= limits.max_model_len:
        return f"a chunk of {cell.chunk:,} tokens is longer than the model length of {limits.max_model_len:,}"
    return _seats_objection(seats, limits) or _tokens_objection(tokens, limits)


def _prefill_objection(cell: Cell, limits: Limits) -> str | None:
    if cell.context >= limits.max_model_len:
        return f"the model length is {limits.max_model_len:,}"
    tokens, seats = cell.batch * cell.context, 2 * cell.batch
    return _tokens_objection(tokens, limits) or _seats_objection(seats, limits)


def _seats_objection(seats: int, limits: Limits) -> str | None:
    if seats <= limits.max_num_seqs:
        return None
    return f"{seats} requests at once are needed, vLLM takes {limits.max_num_seqs} here (--max-num-seqs)"


def _tokens_objection(tokens: int, limits: Limits) -> str | None:
    if tokens <= limits.max_num_batched_tokens:
        return None
    most = limits.max_num_batched_tokens
    return f"{tokens:,} tokens are more than the {most:,} of one step (--max-num-batched-tokens)"


def cost(cell: Cell, steps: int) -> int:
    """Tokens to compute, prompts that fill the KV cache included: what decides how long a cell takes."""
    count = WARMUP[cell.phase] + steps_of(cell.phase, steps)
    if cell.phase == PREFILL:
        return cell.batch * cell.context * count
    return cell.batch * cell.context + count * (cell.batch + (cell.chunk or 0))


def _batches(phase: str, limits: Limits) -> tuple[int, ...]:
    found = tuple(batch for batch in _BATCHES[phase] if batch <= limits.max_num_seqs)
    return found or (limits.max_num_seqs,)


def _contexts(phase: str, limits: Limits, steps: int) -> tuple[int, ...]:
    """The longest usual one that fits, a quarter of it and a short one."""
    around = WARMUP[phase] + steps_of(phase, steps)
    room = limits.max_model_len - (1 if phase == PREFILL else around)
    room = min(room, limits.max_num_batched_tokens) if phase == PREFILL else room
    longest = min(_LONGEST[phase], 1 << max(0, room.bit_length() - 1))
    lengths = [longest // part for part in _SHORTER[phase]]
    least = 0 if phase == PREFILL else around
    return tuple(length for length in lengths if length > least) or (longest,)


# ---------------------------------------------------------------- words


def parse_phases(text: str | None) -> tuple[str, ...]:
    """`decode,mixed`; all without a word. Raises InputError."""
    if not text:
        return PHASES
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in PHASES]:
        raise InputError(f"--phases: {unknown[0]!r} is not a phase", f"with commas, any of {', '.join(PHASES)}")
    return tuple(phase for phase in PHASES if phase in names)


def parse_numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    """`1,8,64` in ascending order; None where nothing is said. Raises InputError."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError(f"{option} {text!r} is not a list of sizes", "whole numbers above zero with commas: 1,8,64")
    return tuple(sorted({int(word) for word in words}))
