"""In which CUDA graphs a server's steps ran, as it counts them itself with --cudagraph-metrics. Pure.

The flag exists since 0.13.0. Every VLLM_LOG_STATS_INTERVAL seconds (10) the API server logs a table of the steps since the last
one (`CUDAGraphLogging` of compilation/cuda_graph.py, the same words in 0.13.0 to 0.33.0), so up to ten seconds before a stop are
missing. Model runner V1 reports its steps in all of these, V2 only from 0.30.0 on. A row does not say whether the step
decoded only: a step of no more tokens than all requests in flight decode together is taken for one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.engine.capture import Coverage
from advisor.records import GraphSteps

FLAG = "--cudagraph-metrics"
SINCE, V2_SINCE = (0, 13, 0), (0, 30, 0)
FULL, PIECEWISE, NONE = "FULL", "PIECEWISE", "NONE"
ENOUGH = 20  # steps; fewer are no evidence that a kind of graph is never used
_FEW = 0.01  # share of steps that is not worth a word
_ROW = re.compile(r"\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*\d+\s*\|\s*(FULL|PIECEWISE|NONE)\s*\|\s*(\d+)\s*\|")


# ---------------------------------------------------------------- reading


def step_row(line: str) -> GraphSteps | None:
    """A row of the table: | Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |"""
    found = _ROW.search(line)
    return GraphSteps(int(found[1]), int(found[2]), found[3], int(found[4])) if found else None


def merged(rows: Iterable[GraphSteps]) -> tuple[GraphSteps, ...]:
    """The tables of all intervals as one, most frequent first."""
    counts: Counter[tuple[int, int, str]] = Counter()
    for row in rows:
        counts[row.tokens, row.padded, row.mode] += row.count
    return tuple(GraphSteps(*kind, count) for kind, count in counts.most_common())


def mode_shares(steps: Sequence[GraphSteps]) -> dict[str, float]:
    """Share of the steps by mode; {} where there is none."""
    total = _count(steps)
    shares = {
        mode: _count(step for step in steps if step.mode == mode) / total for mode in (FULL, PIECEWISE, NONE) if total
    }
    return {mode: round(share, 4) for mode, share in shares.items() if share}


def _count(steps: Iterable[GraphSteps]) -> int:
    return sum(step.count for step in steps)


# ---------------------------------------------------------------- asking


def metrics_arguments(flags: Sequence[str], platform: str) -> tuple[str, ...]:
    """What to add to a serve command so that the server counts its steps; () where that tells nothing: no graphs, no flag.

    `flags` are the installed vLLM's (EngineFacts.flags).
    """
    return (FLAG,) if platform != "cpu" and FLAG in flags else ()


def silence(version: tuple[int, ...], model_runner: str | None) -> str:
    """Why a server that was asked for the table wrote none."""
    if version < V2_SINCE and model_runner == "V2":
        return f"{FLAG} was given and no step was counted: the model runner V2, which runs here, counts from vLLM 0.30.0 on"
    return f"{FLAG} was given and no step was counted: the server logs its table every 10 s (VLLM_LOG_STATS_INTERVAL)"


# ---------------------------------------------------------------- judging


@dataclass(frozen=True)
class StepsVerdict:
    """`wrong`: a graph mode that was asked for and in which no step ran; `ran` is the mode that describes what did."""

    wrong: str | None = None
    ran: str | None = None
    notes: tuple[str, ...] = ()


def judge_steps(
    wanted: str | None,
    mode: str | None,
    steps: Sequence[GraphSteps],
    foretold: Coverage | None,
    largest_decode: int,
) -> StepsVerdict:
    """Compare counted steps with what was asked for and with what the capture list foretells.

    `wanted` is the graph mode that the candidate itself sets, `mode` the one that the server says it runs; `largest_decode`
    the tokens of the largest decode batch of this load.
    """
    if not steps:
        return StepsVerdict()
    decode = [step for step in steps if step.tokens <= largest_decode and not _uneven(step, foretold)]
    covered = [step for step in decode if foretold and step.tokens in foretold.padded]
    ran = _ran(steps)
    wrong = _unused(wanted, steps, covered, ran) if wanted else None
    notes = (
        () if foretold is None or _count(decode) < ENOUGH else _notes(mode, decode, covered, foretold, largest_decode)
    )
    return StepsVerdict(wrong, ran if wrong else None, notes)


def _uneven(step: GraphSteps, foretold: Coverage | None) -> bool:
    """Whether its requests brought different numbers of draft tokens: such a step runs like one with prompts in it.

    An H200 with n-gram speculation ran most of its steps so (tests/data/launches/h200-0.26/counted-ngram.log).
    """
    return foretold is not None and step.tokens < foretold.full_decode_max and step.tokens not in foretold.padded


def _ran(steps: Sequence[GraphSteps]) -> str:
    """The graph mode that could have given these steps."""
    modes = {step.mode for step in steps}
    if {FULL, PIECEWISE} <= modes:
        return "FULL_AND_PIECEWISE"
    return FULL if FULL in modes else PIECEWISE if PIECEWISE in modes else NONE


def _unused(wanted: str, steps: Sequence[GraphSteps], covered: Sequence[GraphSteps], ran: str) -> str | None:
    if wanted == NONE and ran != NONE:
        graphs = _count(step for step in steps if step.mode != NONE)
        return f"cudagraph_mode=NONE was asked for, {graphs} of {_count(steps)} steps ran in graphs"
    if FULL in wanted and _count(covered) >= ENOUGH and FULL not in ran:
        return (
            f"cudagraph_mode={wanted} was asked for, none of {_count(covered)} decode steps of captured sizes ran in a FULL graph"
            f" ({_said(covered)})"
        )
    if wanted == PIECEWISE and PIECEWISE not in ran and _count(steps) >= ENOUGH:
        return f"cudagraph_mode=PIECEWISE was asked for, none of {_count(steps)} steps ran in a piecewise graph ({_said(steps)})"
    return None


def _notes(
    mode: str | None,
    decode: Sequence[GraphSteps],
    covered: Sequence[GraphSteps],
    foretold: Coverage,
    largest: int,
) -> tuple[str, ...]:
    """Where decode steps ran otherwise than the capture list foretells, and what it foretells to run without graphs."""
    notes = []
    without = [step for step in covered if step.mode == NONE]
    if _share(without, decode) > _FEW:
        notes.append(
            f"{_percent(without, decode)} of the decode steps (up to {largest} tokens) ran without a graph although {mode} has one"
            " of their size"
        )
    outside = [step for step in decode if step.tokens not in foretold.padded]
    if FULL in (mode or "") and _share(outside, decode) > _FEW:
        notes.append(
            f"{_percent(outside, decode)} of the decode steps hold more tokens than the FULL graphs cover"
            f" (up to {foretold.full_decode_max}): {_said(outside)}"
        )
    otherwise = [step for step in covered if step.mode == FULL and step.padded != foretold.padded[step.tokens]]
    if otherwise:
        first = otherwise[0]
        notes.append(
            f"{_count(otherwise)} decode steps were padded otherwise than foretold: {first.tokens} tokens to {first.padded},"
            f" foretold {foretold.padded[first.tokens]}"
        )
    return tuple(notes)


def _share(part: Sequence[GraphSteps], whole: Sequence[GraphSteps]) -> float:
    return _count(part) / _count(whole)


def _percent(part: Sequence[GraphSteps], whole: Sequence[GraphSteps]) -> str:
    return f"{100 * _share(part, whole):.0f}%"


def _said(steps: Sequence[GraphSteps]) -> str:
    """`90% PIECEWISE, 10% without a graph`"""
    names: Mapping[str, str] = {FULL: "in FULL graphs", PIECEWISE: "piecewise", NONE: "without a graph"}
    return ", ".join(f"{100 * share:.0f}% {names[mode]}" for mode, share in mode_shares(steps).items())
