"""What the second measurements of vLLM's own choice say, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.attention.winners import LEAST

_SEVERAL, _NEARLY_ALL, DRIFTS = 4, 0.8, 0.05  # cells, part of them, and what they differ by: no chance any more


def noises(noise: Mapping[str, Mapping[str, Any]], default: str | None) -> list[str]:
    """What a difference has to exceed."""
    said = []
    for phase, found in noise.items():
        if not found["cells"]:
            said.append(
                f"noise of {phase}: {default} was not measured a second time, differences over {LEAST:.0%} count"
            )
            continue
        counts = max(LEAST, found["high"])
        said.append(
            f"noise of {phase}: measured a second time, {default} differed by {found['typical']:.1%} (median of "
            f"{counted(found['cells'])}), {found['most']:.1%} at most; differences over {counts:.1%} count, or the cell's own"
            f"{_drift(found)}"
        )
    return said


def _drift(found: Mapping[str, Any]) -> str:
    """That the second time was faster, or slower, nearly everywhere: then it is not chance alone."""
    cells, faster = found["cells"], found.get("faster", 0)
    same = max(faster, cells - faster)
    if cells < _SEVERAL or same < _NEARLY_ALL * cells or found["typical"] < DRIFTS:
        return ""
    which = "faster" if faster == same else "slower"
    return f"; {which} the second time in {same} of {cells}: the machine was not the same then"


def counted(cells: int) -> str:
    return f"{cells} cell{'s' * (cells != 1)}"
