"""What the GPU's time in a step says where the steps themselves are a tie, in sentences. Pure.

A host that is slow hides what kernels take: the step is the host's then, with any backend. Who is ahead in GPU time wins nothing.
Where the GPU is busy all the time the noise of the steps hides it, and a quicker host changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.attention.noise_words import counted
from advisor.attention.phrases import grouped, names_of, place, span
from advisor.attention.regions import joined, region
from advisor.attention.rows import by_key, is_traced, key_of
from advisor.attention.winners import AHEAD, TIE, WINS

BUSY = 0.9  # of a step: from there on the host does not set the pace

_Cell = Mapping[str, Any]


def no_gpu(document: Mapping[str, Any]) -> list[str]:
    if document.get("versions", {}).get("platform") != "cpu":
        return []
    return ["GPU time does not apply: this is a processor, and what a step takes is all that there is"]


def gpu_ahead(phase: str, cells: Sequence[_Cell], backends: Mapping[str, _Cell], default: str | None) -> list[str]:
    """Who is ahead in GPU time where the steps of a phase are a tie, and how much of a step that is."""
    tied = [cell for cell in ties(cells, backends, default) if cell["phase"] == phase]
    if not tied:
        return []
    every, said = [place(cell) for cell in tied], []
    for ahead in grouped(tied):
        where = region([place(cell) for cell in ahead], every, names_of(phase)) or "everywhere"
        said.append(f"{_who(ahead[0])} ahead {where} ({_behind(ahead, default)})")
    meaning = _meaning([cell for cell in tied if cell["outcome"] != TIE])
    if equal := sum(cell["outcome"] == TIE for cell in tied):
        said.append(f"nobody in the other {equal}" if said else f"nobody is ahead in any of {counted(equal)}")
    share = span(tied, "share")
    return [f"GPU time where {phase} steps are a tie ({share} of {default}'s step): {', '.join(said)}{meaning}"]


def _meaning(ahead: Sequence[_Cell]) -> str:
    if not ahead:
        return ""
    hidden = any(cell["share"] < BUSY for cell in ahead)
    return ": what a quicker host would see" if hidden else ": less than the noise of the steps"


def gpu_advice(cells: Sequence[_Cell], backends: Mapping[str, _Cell], default: str | None) -> list[str]:
    """Which other backends are worth a second look where the host is quicker; none where vLLM's own choice is not behind."""
    tied = [cell for cell in ties(cells, backends, default) if cell["share"] < BUSY]
    counts = Counter(name for cell in tied for name in _others(cell, default))
    if not counts:
        return []
    told = joined(f"{name} in {count}" for name, count in counts.most_common())
    return [
        f"with a quicker host measure again: in GPU time {default} is behind {told} of {counted(len(tied))} that tie while the GPU "
        "waits for the host"
    ]


def ties(cells: Sequence[_Cell], backends: Mapping[str, _Cell], default: str | None) -> list[dict[str, Any]]:
    """Cells whose steps are a tie, with what their GPU times say instead, where vLLM's own choice and another were traced.

    `share`: of its step, the GPU's time with vLLM's own choice. It is that of other steps, and never taken to be more than all.
    """
    own = by_key([row for row in backends[default]["rows"] if is_traced(row)]) if default in backends else {}
    found = []
    for cell in cells:
        row, gpu = own.get(key_of(cell)), cell.get("gpu")
        if cell["outcome"] == TIE and row and gpu:
            share = min(1.0, row["gpu_ms"] / row["step_ms"])
            found.append({**{name: cell[name] for name in ("phase", "batch", "context")}, **gpu, "share": share})
    return found


def _others(cell: _Cell, default: str | None) -> list[str]:
    """Those that are ahead of vLLM's own choice."""
    if cell["outcome"] == AHEAD or (cell["outcome"] == WINS and cell["best"] != default):
        return cell["tied"]
    return []


def _who(cell: _Cell) -> str:
    names = [cell["best"]] if cell["outcome"] == WINS else cell["tied"]
    return f"{joined(names)} {'are' if len(names) > 1 else 'is'}"


def _behind(ahead: Sequence[_Cell], default: str | None) -> str:
    if ahead[0]["best"] == default:
        return f"the next one's is {span(ahead, 'over_next')} longer"
    return f"{default}'s is {span(ahead, 'over_default')} longer"
