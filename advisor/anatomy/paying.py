"""From which batch size on graphs have nothing more to give, in a sentence. Pure.

Graphs take the launches out of the host's work. They pay where the GPU waits for it, and no longer where it is hidden behind the
GPU's: both are timed, so no total is subtracted from another one. A core that is not pipelined tells no host time; then the time
in which the GPU has nothing to do is what there is to gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.anatomy.modes import TITLES
from advisor.stepping.figures import change, ms

PAYS = 0.05  # of a step without graphs: where there is less to gain, graphs have nothing to give

Row = Mapping[str, Any]
Steps = Mapping[str, Mapping[int, Row]]  # mode -> batch size -> steady row


def paying(steps: Steps, measured: Sequence[int] = ()) -> list[str]:
    """`measured`: batch sizes, those too of which no steady step is there."""
    name = next((name for name in ("compile", "none") if _judged(steps.get(name, {}))), None)
    if name is None:
        return []
    judged = _judged(steps[name])
    end = stop_paying(judged)
    batch = max(judged) if end is None else end
    why = f"without them ('{TITLES[name]}') {_figures(steps[name][batch])}{_gain(steps, name, batch)}"
    if end is None:
        larger = ", ".join(str(one) for one in sorted(measured) if one > batch)
        rest = f"; of batch {larger} nothing is said, the steps of '{TITLES[name]}' differ too much there" if larger else ""
        return [f"graphs still pay at batch {batch}: {why}{rest}"]
    since = f"graphs do not pay at any batch size from {end} on" if end == min(judged) else f"graphs stop paying at batch {end}"
    return [f"{since}: {why}, so less than {PAYS:.0%} can be gained"]


def pays(row: Row) -> bool | None:
    """Whether graphs have at least PAYS of this step without graphs to give; None where the figures do not tell."""
    host, gpu, idle = (row.get(name) for name in ("host_ms", "gpu_ms", "gpu_idle_ms"))
    if gpu is None:
        return None
    if host is not None:
        return gpu < (1 - PAYS) * host
    if idle is not None:
        return idle >= PAYS * row["step_ms"]
    return False if row["gpu_idle_high_ms"] < PAYS * row["step_ms"] else None


def stop_paying(judged: Mapping[int, bool]) -> int | None:
    """The smallest batch from which on graphs do not pay; None where they do at the largest."""
    end = None
    for batch in sorted(judged, reverse=True):
        if judged[batch]:
            break
        end = batch
    return end


def _judged(rows: Mapping[int, Row]) -> dict[int, bool]:
    return {batch: told for batch, row in rows.items() if (told := pays(row)) is not None}


def _figures(row: Row) -> str:
    """What pays() went by."""
    if row.get("host_ms") is not None:
        return f"the host works for {ms(row['host_ms'])}, the GPU for {ms(row['gpu_ms'])}"
    bound = row["gpu_idle_ms"] is None
    idle = row["gpu_idle_high_ms"] if bound else row["gpu_idle_ms"]
    return f"the GPU has nothing to do for {ms(idle)} of the step's {ms(row['step_ms'])}{' at most' if bound else ''}"


def _gain(steps: Steps, name: str, batch: int) -> str:
    """What full graphs changed there, in brackets, beside what they could: a larger batch than the largest graph has none."""
    graphed = "both" if name == "compile" else "full"
    row = steps.get(graphed, {}).get(batch)
    if row is None:
        return ""
    return f" ('{TITLES[graphed]}': {change(row['step_ms'] / steps[name][batch]['step_ms'])})"
