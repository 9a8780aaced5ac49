"""What the modes themselves tell of the noise between processes, in sentences. Pure.

A prompt longer than the largest graph runs without one: modes that differ in graphs alone then run the same code, and what their
times differ by is chance. The cost of a launch, measured in each mode's process, tells whether the host was equally fast in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.anatomy.modes import TITLES
from advisor.stepping.figures import ms

AGREE = 0.1  # of the shorter one: more is told with every figure
SLOWER = 1.5  # times the least cost of a launch
_ALIKE = (("none", "full"), ("compile", "piecewise", "both"))  # the same code where no graph runs

Modes = Mapping[str, Mapping[str, Any]]
Times = Mapping[str, Mapping[str, Any]]  # mode -> row


def noise(modes: Modes) -> list[str]:
    return [*same_code(modes), *slow_hosts(modes)]


def unsteady(modes: Modes) -> list[str]:
    """Batch sizes whose steps differ among themselves by more than the modes may."""
    said = []
    for name, mode in modes.items():
        told = [f"batch {row['batch']}{_quartiles(row)}" for row in mode.get("decode", ()) if _is_unsteady(row)]
        told += [
            f"a prompt of {row['tokens']} tokens{_quartiles(row)}"
            for row in mode.get("prefill", ())
            if _is_unsteady(row)
        ]
        if told:
            said.append(
                f"{TITLES[name]}: not steady (* above), between the quartiles: {', '.join(told)}; did something else use this "
                "machine? Nothing below is said of these"
            )
    return said


def _is_unsteady(row: Mapping[str, Any]) -> bool:
    return row["step_ms"] is not None and not row["steady"]


def _quartiles(row: Mapping[str, Any]) -> str:
    return f" ({ms(row['step_low_ms'])} to {ms(row['step_high_ms'])})"


def same_code(modes: Modes) -> list[str]:
    """Of every length of prompt, what modes differ by that run the same code for it."""
    said = []
    for tokens in sorted({row["tokens"] for mode in modes.values() for row in mode.get("prefill", ())}):
        groups = [group for names in _ALIKE if len(group := _without_graph(modes, names, tokens)) > 1]
        if not groups:
            continue
        if (most := max(map(_spread, groups))) <= AGREE:
            said.append(
                f"prefill of {tokens} tokens needs no graph: modes that run the same code for it agree within {most:.0%}"
            )
        else:
            said.append(_apart(tokens, groups))
    return said


def _without_graph(modes: Modes, names: Sequence[str], tokens: int) -> Times:
    """Steady rows of a prompt that a trace saw no graph in, by mode."""
    found = {}
    for name in names:
        for row in modes.get(name, {}).get("prefill", ()):
            if row["tokens"] == tokens and row["step_ms"] and row["steady"] and row.get("graph_launches") == 0:
                found[name] = row
    return found


def _spread(group: Times) -> float:
    steps = [row["step_ms"] for row in group.values()]
    return max(steps) / min(steps) - 1


def _apart(tokens: int, groups: Sequence[Times]) -> str:
    told = "; ".join(
        ", ".join(f"'{TITLES[name]}' {ms(row['step_ms'])}" for name, row in group.items()) for group in groups
    )
    works = [row["gpu_ms"] for group in groups for row in group.values() if row.get("gpu_ms") is not None]
    gpu = f" (the GPU works for {ms(min(works))} to {ms(max(works))} of each)" if works else ""
    return (
        f"prefill of {tokens} tokens runs without a graph, and these modes run the same code for it: {told}{gpu}. The host was not "
        "equally fast in all processes: where it sets the pace, modes may differ by as much for no other reason"
    )


def slow_hosts(modes: Modes) -> list[str]:
    """Modes in whose process launching a kernel, and nothing else, took much longer than in another's."""
    costs = {name: mode["launch"]["bare_us"] for name, mode in modes.items() if mode.get("launch")}
    if len(costs) < 2:
        return []
    best = min(costs, key=lambda name: costs[name])
    return [
        f"{TITLES[name]}: the host was slow in this process, launching a bare kernel took it {cost:.1f} us, {costs[best]:.1f} us "
        f"with '{TITLES[best]}': where the host sets the pace, steps are longer for it. Delete the mode from the file to measure "
        "it again"
        for name, cost in costs.items()
        if cost > SLOWER * costs[best]
    ]
