"""What the figures of an anatomy say, in sentences. Pure: the document's own parts in, lines out.

Every sentence states the figures that it follows from, and one that nothing was measured for is not made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.anatomy.ahead import ahead
from advisor.anatomy.modes import TITLES
from advisor.anatomy.noise import noise, unsteady
from advisor.anatomy.parts import decides
from advisor.anatomy.paying import PAYS, paying
from advisor.anatomy.starts import starts
from advisor.stepping.figures import change, ms

SLACK = 1.1  # what only reads is a little faster than a copy: a floor may lie so far above a step
_GRAPHED = ("full", "piecewise", "both")


def sentences(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """`modes`: name -> what was measured (document.py). The order is that of the questions in docs/anatomy.md."""
    no_floor, modes = broken_floor(modes), with_floor_that_holds(modes)
    steps = {name: by_batch(mode) for name, mode in modes.items()}
    return [
        *no_graphs(modes),
        *untimed(modes),
        *unsteady(modes),
        *noise(modes),
        *no_floor,
        *no_idle(modes),
        *whole(steps),
        *ahead(steps),
        *dominant(steps),
        *piecewise(steps),
        *paying(steps, batches(modes)),
        *beyond_graphs(modes),
        *above_floor(steps),
        *starts(modes),
    ]


def by_batch(mode: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Batch size -> row, of those that have a time and a steady one: no sentence and no claim rests on others."""
    return {row["batch"]: row for row in mode.get("decode", ()) if row["step_ms"] is not None and row["steady"]}


# ---------------------------------------------------------------- sentences


def no_graphs(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """That this build has no graphs, if every mode that asked for some came to the same as one without."""
    asked = [modes[name] for name in _GRAPHED if name in modes]
    if not asked or not all((mode.get("resolved") or {}).get("cudagraph_mode") in (None, "NONE") for mode in asked):
        return []
    return ["no CUDA graphs here: this vLLM resolves every graph mode to none, so only compilation can be compared"]


def untimed(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """That there is no host time, and why: it is never made up of the others."""
    rows = [row for mode in modes.values() for row in mode.get("decode", ()) if row["step_ms"] is not None]
    missing = [row for row in rows if row.get("host_ms") is None]
    if not missing:
        return []
    some = "" if len(missing) == len(rows) else f" of {len(missing)} of {len(rows)} decode steps"
    return [
        f"no host time{some}: the host's work can be told apart only where the core prepares a step while a GPU runs the one before"
    ]


def no_idle(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Of which steps the GPU's idle time is left out, since it may as well be none."""
    told = []
    for name, mode in modes.items():
        rows = [row for row in mode.get("decode", ()) if row.get("gpu_ms") is not None and row.get("gpu_idle_ms") is None]
        if rows:
            told.append(f"'{TITLES[name]}' at batch {', '.join(str(row['batch']) for row in rows)}")
    if not told:
        return []
    return [f"idle time of the GPU is not told where the step's lower quartile is not above the GPU's work: {'; '.join(told)}"]


def broken_floor(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """That a step was shorter than what bounds it, so that the bandwidth must have been measured too low."""
    rows = _below_floor(modes)
    if not rows:
        return []
    worst = max(rows, key=lambda row: row["floor_ms"] / row["step_ms"])
    return [
        f"batch {worst['batch']}: a step of {ms(worst['step_ms'])} is shorter than its floor of {ms(worst['floor_ms'])}: the "
        "bandwidth was measured too low (did something else use this machine?), or the weights lie in a cache. Nothing is said "
        "of the floor"
    ]


def whole(steps: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> list[str]:
    """What the best of the measured optimisations saves of a step without any, at the smallest and the largest batch."""
    said = []
    for batch in ends(steps.get("none", {})):
        plain = steps["none"][batch]["step_ms"]
        others = {name: rows[batch]["step_ms"] for name, rows in steps.items() if name != "none" and batch in rows}
        if others:
            best = min(others, key=lambda name: others[name])
            said.append(
                f"batch {batch}: a step takes {ms(plain)} without any optimisation, {ms(others[best])} with "
                f"'{TITLES[best]}' ({change(others[best] / plain)}){_level(steps, batch, best)}"
            )
    return said


def _level(steps: Mapping[str, Mapping[int, Mapping[str, Any]]], batch: int, best: str) -> str:
    """`, not told apart from ...`: other modes whose quartiles meet the best one's, which may be slower than no optimisation."""
    least, most = (steps[best][batch][name] for name in ("step_low_ms", "step_high_ms"))
    level = [
        f"'{TITLES[name]}'"
        for name, rows in steps.items()
        if name != best and batch in rows and rows[batch]["step_low_ms"] <= most and rows[batch]["step_high_ms"] >= least
    ]
    return (
        f", not told apart from {' and '.join([*filter(None, [', '.join(level[:-1])]), *level[-1:]])}" if level else ""
    )


def dominant(steps: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> list[str]:
    """What takes most of a step, of the plainest mode and of the fullest one that was measured."""
    said = []
    measured = [name for name in steps if steps[name]]
    for name in dict.fromkeys([*measured[:1], *measured[-1:]]):
        for batch in ends(steps[name]):
            row = steps[name][batch]
            if row.get("operators_ms") is not None:
                share = row["operators_ms"] / row["traced_ms"]
                said.append(
                    f"{TITLES[name]}, batch {batch}: PyTorch's operators take {share:.0%} of a traced step "
                    f"({row['operators']:,.0f} of them), scheduling and Python the rest"
                )
            if told := decides(row):
                said.append(f"{TITLES[name]}, batch {batch}: {told}")
    return said


def piecewise(steps: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> list[str]:
    """Share of the full graphs' gain over compilation alone that piecewise graphs give."""
    shares = piecewise_shares(steps)
    if not shares:
        if not set.intersection(*(set(steps.get(name, {})) for name in ("compile", "piecewise", "both"))):
            return []
        return [
            f"full graphs gain less than {PAYS:.0%} over compilation alone: no share of it is told for piecewise graphs"
        ]
    told = ", ".join(f"batch {batch}: {share:.0%}" for batch, share in sorted(shares.items()))
    return [f"piecewise graphs give this share of what full graphs gain over compilation alone: {told}"]


def beyond_graphs(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Batches that are larger than the largest captured one."""
    said = []
    for name in _GRAPHED:
        sizes = (modes.get(name, {}).get("resolved") or {}).get("capture_sizes")
        larger = [batch for batch in by_batch(modes.get(name, {})) if sizes and batch > sizes[-1]]
        if larger:
            told = ", ".join(map(str, sorted(larger)))
            said.append(f"{TITLES[name]}: batch {told} ran without a graph, the largest one captured is {sizes[-1]}")
    return said


def above_floor(steps: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> list[str]:
    """How far the best step is from what reading weights and KV cache would take."""
    said = []
    for batch in ends(sorted({batch for rows in steps.values() for batch in rows})):
        best = best_mode(steps, batch)
        if best is not None and (floor := steps[best][batch].get("floor_ms")):
            step = steps[best][batch]["step_ms"]
            said.append(
                f"batch {batch}: the best step ('{TITLES[best]}', {ms(step)}) takes {step / floor:.1f} times the floor of "
                f"{ms(floor)}, which reading the weights and the KV cache takes"
            )
    return said


# ---------------------------------------------------------------- figures


def with_floor_that_holds(modes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """The modes as they are, or without any floor where a step was shorter than its own."""
    if not _below_floor(modes):
        return modes
    return {
        name: {**mode, "decode": [{**row, "floor_ms": None} for row in mode.get("decode", ())]}
        for name, mode in modes.items()
    }


def _below_floor(modes: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    rows = (row for mode in modes.values() for row in mode.get("decode", ()) if row["step_ms"] and row.get("floor_ms"))
    return [row for row in rows if row["floor_ms"] > SLACK * row["step_ms"]]


def batches(modes: Mapping[str, Mapping[str, Any]]) -> set[int]:
    """Batch sizes that some mode has a time of."""
    return {row["batch"] for mode in modes.values() for row in mode.get("decode", ()) if row["step_ms"] is not None}


def best_mode(steps: Mapping[str, Mapping[int, Mapping[str, Any]]], batch: int) -> str | None:
    """The mode with the shortest step at this batch size."""
    found = {name: rows[batch]["step_ms"] for name, rows in steps.items() if batch in rows}
    return min(found, key=lambda name: found[name]) if found else None


def piecewise_shares(steps: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[int, float]:
    """Batch -> share; only where full graphs save at least PAYS of the step: a share of nothing says nothing."""
    shares = {}
    for batch, row in steps.get("compile", {}).items():
        some, most = (steps.get(name, {}).get(batch) for name in ("piecewise", "both"))
        if some and most and (gain := row["step_ms"] - most["step_ms"]) >= PAYS * row["step_ms"]:
            shares[batch] = (row["step_ms"] - some["step_ms"]) / gain
    return shares


def ends(batches: Mapping[int, Any] | Sequence[int]) -> list[int]:
    """The smallest and the largest."""
    found = sorted(batches)
    return list(dict.fromkeys([found[0], found[-1]])) if found else []
