"""What is known of settings before a study has measured any: a short list, each entry with its source. Pure.

An entry is a figure like one of the study's own, only that much is allowed for the difference of model, GPU and load. The study's
trials outweigh it as soon as there are any. Large effects carry over; small ones only say what is tried later (hints).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.records import Candidate, EngineFacts, Workload
from advisor.search.effects import Point
from advisor.space.choices import Limits, SettingChoices

_SIZES = "cudagraph_capture_sizes"
_MODE = "cudagraph_mode"
_SEQUENCES = "max_num_seqs"
_ASYNC = "async_scheduling"
# Elsewhere an effect may be larger or smaller by a third, and all may be off by 5%: a choice.
_SHARE, _MORE = 1 / 3, 0.05


@dataclass(frozen=True)
class Entry:
    """`ratio`: output tokens a second over the default's. `source`: where it was measured, or the fact that it follows from."""

    settings: Mapping[str, Any]
    ratio: float
    source: str

    def point(self) -> Point:
        value = math.log(self.ratio)
        sd = _SHARE * abs(value) + _MORE
        return Point(Candidate(self.settings), value, sd, hint=abs(value) < 2 * sd)


_H200 = "docs/evidence: Llama-3.1-8B on an H200, 64 in flight, vLLM 0.26.0"
# One launch of each against 3,231 of the default (the table in docs/evidence/tunes.md): all single values that lost more there
# than launches differ by.
MEASURED = (
    Entry({"enforce_eager": True}, 1672 / 3231, _H200),
    Entry({"cudagraph_mode": "NONE"}, 2115 / 3231, _H200),
    Entry({"cudagraph_mode": "PIECEWISE"}, 3062 / 3231, _H200),
    Entry({"attention_backend": "FLEX_ATTENTION"}, 926 / 3231, _H200),
    Entry({"attention_backend": "TRITON_ATTN"}, 3021 / 3231, _H200),
    Entry({"attention_backend": "FLASHINFER"}, 3122 / 3231, _H200),
)
# Without any graph that 8B lost this much of its speed: what a load can win back whose batches have none.
_GRAPHS = 3231 / 2115


def known_before(
    engine: EngineFacts, workload: Workload, limits: Limits, settings: Sequence[SettingChoices], metric: str
) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """(figures, sentences for the person about what this load makes promising). Nothing for other figures than throughput."""
    if metric not in ("output_tok_s", "requests_s"):
        return (), ()
    found, told = [], []
    on_gpu = (_measured, _gaps_between_steps, _larger_graphs, _short_prompts) if engine.platform == "cuda" else ()
    for source in (*on_gpu, _sequences):
        for points, sentence in source(workload, limits, settings):
            found += points
            told += [sentence] if sentence else []
    return tuple(found), tuple(told)


Found = Iterator[tuple[list[Point], str]]


def _measured(_workload: Workload, _limits: Limits, settings: Sequence[SettingChoices]) -> Found:
    """The entries of MEASURED that the space can have."""
    legal = {choice.name: set(map(str, choice.values)) for choice in settings}
    for entry in MEASURED:
        if all(str(value) in legal.get(name, ()) for name, value in entry.settings.items()):
            yield [entry.point()], ""


def _gaps_between_steps(_workload: Workload, _limits: Limits, settings: Sequence[SettingChoices]) -> Found:
    """vLLM says of asynchronous scheduling that the GPU waits less (config/scheduler.py of 0.26), not by how much: without it as
    much is expected to be lost as a figure from elsewhere may be off, give or take the same."""
    if False in _values(_ASYNC, settings):
        yield [Point(Candidate({_ASYNC: False}), -_MORE, _MORE, hint=True)], ""


def _larger_graphs(workload: Workload, limits: Limits, settings: Sequence[SettingChoices]) -> Found:
    """Batches above the largest captured size run without a graph (docs/capture-sizes.md); vLLM captures up to
    min(2 x max_num_seqs, 512) by itself (sources of 0.11.2 to 0.33). How much of `_GRAPHS` such a load wins back is not known: half
    of it, give or take the other half. Lists that end no later than vLLM's leave it without a graph too."""
    batch = min(workload.concurrency or 0, limits.max_num_seqs)
    largest = max(limits.capture_sizes, default=batch)
    lists = [value for value in _values(_SIZES, settings) if max(value, default=0) > largest]
    if batch <= largest or not lists:
        return
    half = math.log(_GRAPHS) / 2
    points = [Point(Candidate({_SIZES: value}), half, half) for value in lists]
    points += [Point(Candidate({_SIZES: value}), 0.0, _MORE) for value in _values(_SIZES, settings) if value not in lists]
    yield (
        points,
        (
            f"{batch} requests decode together, and vLLM's own largest graph holds {largest}: "
            "larger capture sizes are tried first"
        ),
    )


def _short_prompts(workload: Workload, limits: Limits, settings: Sequence[SettingChoices]) -> Found:
    """By default a step that holds a prompt runs in pieces, with FULL in one graph where prompt and batch fit the largest. vLLM
    says of FULL that it can be good where prompts are small (config/compilation.py of 0.26), not by how much: as much as a figure
    from elsewhere may be off is expected, give or take the same."""
    batch = min(workload.concurrency or 0, limits.max_num_seqs)
    tokens, largest = batch + workload.input_tokens, max(limits.capture_sizes, default=0)
    if batch and tokens <= largest and "FULL" in _values(_MODE, settings):
        step = f"a prompt of {workload.input_tokens} tokens and {batch} requests"
        yield [Point(Candidate({_MODE: "FULL"}), _MORE, _MORE)], f"a step with {step} fits a graph: {_MODE}=FULL is tried first"


def _sequences(workload: Workload, limits: Limits, settings: Sequence[SettingChoices]) -> Found:
    """Requests above max_num_seqs wait (vLLM's scheduler); with fewer in flight a higher limit changes no batch.

    A lower one makes smaller batches. Where steps take as long as before, tokens are lost as batches shrink; where they are shorter
    by as much, none are: the middle, give or take half the way to either end.
    """
    load = workload.concurrency
    if not load:
        return
    values, batch = _values(_SEQUENCES, settings), min(load, limits.max_num_seqs)
    if load <= limits.max_num_seqs:
        yield [Point(Candidate({_SEQUENCES: value}), 0.0, _MORE / 5) for value in values if value > limits.max_num_seqs], ""
    fewer = [(value, math.log(value / batch) / 2) for value in values if value < batch]
    yield [Point(Candidate({_SEQUENCES: value}), middle, -middle / 2) for value, middle in fewer], ""


def _values(name: str, settings: Sequence[SettingChoices]) -> list[Any]:
    return [value for choice in settings if choice.name == name for value in choice.values if value is not None]
