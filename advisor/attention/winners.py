"""Which backend wins a cell, and when nobody does. Pure.

A backend is ahead of another where its step is shorter by more than the noise, and where the quartiles of their steps do not
meet. The noise of a cell is what vLLM's own choice differed by when the cell was measured a second time in the same process, the
longer step over the shorter one: who is ahead of it is ahead of both measurements. Cells lend each other theirs, because one pair
tells little: the upper quartile over the phase counts where it is more, of second measurements that were steady; in its own cell
one that was not counts too. It is never taken to be less than LEAST. What two starts of one backend differ by is not in it.

Where vLLM's own choice was not steady nobody wins, and who is not ahead of an unsteady one's lower quartile does not win either.

GPU times are compared apart and decide nothing: who is ahead there is so by more than LEAST_GPU, in each trace of the cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from advisor.attention.grid import PHASES
from advisor.attention.rows import Key, by_key, is_measured, is_traced

LEAST = 0.02
# On an H200 the same kernels took up to 2.5% more GPU time in one process than in another (8B; 0.5% with smaller models).
LEAST_GPU = 0.03
WINS, TIE, AHEAD, ALONE, UNSTEADY = "wins", "tie", "ahead-together", "alone", "unsteady"


def comparison(backends: Mapping[str, Mapping[str, Any]], default: str | None) -> dict[str, Any]:
    """{"noise": {phase: ...}, "cells": [...]}: one entry for each cell that was measured with any backend.

    `outcome`: `wins` (`best` is ahead of all others), `tie` (none is ahead of vLLM's own choice), `ahead-together` (one is, or
    several are, and not of all others), `alone` (one steady figure), `unsteady` (none, or not vLLM's own choice).
    `gpu`, where several were traced: the same of the GPU's time.
    """
    rows = {name: by_key([row for row in one["rows"] if is_measured(row)]) for name, one in backends.items()}
    own = _steady(rows.get(default or "", {}))
    noises = noise(own)
    keys = {key for found in rows.values() for key in found}
    cells = [
        _cell(key, {name: found[key] for name, found in rows.items() if key in found}, default, noises)
        for key in sorted(keys, key=lambda key: (PHASES.index(key[0]), key[2], key[1]))
    ]
    return {"noise": noises, "cells": cells}


def _cell(
    key: Key, rows: Mapping[str, Mapping[str, Any]], default: str | None, noises: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    gpu = gpu_outcome(key, rows, default)
    return {**cell_outcome(key, rows, default, noises), **({"gpu": gpu} if gpu else {})}


def gpu_outcome(key: Key, rows: Mapping[str, Mapping[str, Any]], default: str | None) -> dict[str, Any] | None:
    """Who is ahead in GPU time, as cell_outcome tells it of steps; None where that cannot be told of vLLM's own choice and another.

    Steps that were not steady count: the host made them so. A backend whose trace is lost may be ahead of any other one.
    """
    times = {name: _gpu_times(row) for name, row in rows.items()}
    if sum(found["steady"] for found in times.values()) < 2 or not times.get(default or "", {"steady": True})["steady"]:
        return None
    found = cell_outcome(key, times, default, {}, LEAST_GPU)
    return {name: found[name] for name in ("outcome", "best", "tied", "over_default", "over_next")}


def _gpu_times(row: Mapping[str, Any]) -> dict[str, Any]:
    if not is_traced(row):
        return {"steady": False, "step_low_ms": 0.0}
    return {
        "step_ms": row["gpu_ms"], "step_low_ms": row["gpu_low_ms"], "step_high_ms": row["gpu_high_ms"], "steady": True,
    }  # fmt: skip


def _steady(rows: Mapping[Key, Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    return {key: row for key, row in rows.items() if row["steady"]}


def noise(own: Mapping[Key, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """phase -> what the second measurement of vLLM's own choice differed by: `typical`, `high` and `most` of `cells` measured
    twice, `faster` of them the second time.
    """
    found: dict[str, list[float]] = {}
    for key, row in own.items():
        differences = found.setdefault(key[0], [])
        if row.get("again_ms") and row.get("again_steady"):
            differences.append(row["again_ms"] / row["step_ms"])
    return {phase: _summary(ratios) for phase, ratios in found.items()}


def _apart(ratio: float) -> float:
    """The longer one over the shorter one."""
    return max(ratio, 1 / ratio) - 1


def _summary(ratios: Sequence[float]) -> dict[str, Any]:
    if not ratios:
        return {"cells": 0, "typical": None, "high": None, "most": None, "faster": 0}
    differences = list(map(_apart, ratios))
    high = quantiles(differences, n=4, method="inclusive")[2] if len(differences) > 1 else differences[0]
    rounded = {"typical": median(differences), "high": high, "most": max(differences)}
    return {
        "cells": len(differences),
        **{name: round(value, 4) for name, value in rounded.items()},
        "faster": sum(ratio < 1 for ratio in ratios),
    }


def cell_outcome(
    key: Key, rows: Mapping[str, Mapping[str, Any]], default: str | None, noises: Mapping[str, Mapping[str, Any]],
    least: float = LEAST,
) -> dict[str, Any]:  # fmt: skip
    """`rows`: backend -> its row of this cell. `tied`: those that the best one is not ahead of, itself included; where
    it is ahead of vLLM's own choice, those of them that are so as well.

    `over_default` and `over_next`: by what share the default's and the next one's step is longer than the best one's.
    """
    phase, batch, context = key
    found: dict[str, Any] = {"phase": phase, "batch": batch, "context": context}
    shaky = {name: row for name, row in rows.items() if not row["steady"]}
    rows = {name: row for name, row in rows.items() if row["steady"]}
    order = sorted(rows, key=lambda name: rows[name]["step_ms"])
    if not order or default in shaky:
        return {**found, "outcome": UNSTEADY, "best": None, "tied": []}
    best, own = order[0], rows.get(default or "")
    margin = margin_of(own, noises.get(phase, {}), least)
    level = [name for name in order if name == best or not is_ahead(rows[best], rows[name], margin)]
    doubtful = [name for name, row in shaky.items() if row["step_low_ms"] <= rows[best]["step_high_ms"] * (1 + margin)]
    outcome = _outcome(order, [*level, *doubtful], default)
    # A backend whose steps spread far may be neither behind the best one nor ahead of the default.
    tied = [name for name in level if is_ahead(rows[name], own, margin)] if outcome == AHEAD and own else level
    return {
        **found, "outcome": outcome, "best": best, "tied": tied, "margin": round(margin, 4),
        "over_default": _longer(own, rows[best]),
        "over_next": _longer(rows[order[1]], rows[best]) if len(order) > 1 else None,
    }  # fmt: skip


def margin_of(own: Mapping[str, Any] | None, noises: Mapping[str, Any], least: float = LEAST) -> float:
    again = _apart(own["again_ms"] / own["step_ms"]) if own and own.get("again_ms") else 0.0
    return max(least, again, noises.get("high") or 0.0)


def is_ahead(one: Mapping[str, Any], other: Mapping[str, Any], margin: float) -> bool:
    return other["step_ms"] / one["step_ms"] - 1 > margin and one["step_high_ms"] < other["step_low_ms"]


def _outcome(order: Sequence[str], level: Sequence[str], default: str | None) -> str:
    if len(order) == 1:
        return ALONE
    if len(level) == 1:
        return WINS
    return TIE if default in level or default not in order else AHEAD


def _longer(other: Mapping[str, Any] | None, one: Mapping[str, Any]) -> float | None:
    return round(other["step_ms"] / one["step_ms"] - 1, 4) if other else None
