"""What a step is made of, and what decides how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.stepping.figures import ms

READING, OTHER, IDLE, GAPS = "reading weights and KV cache", "other GPU work", "idle time of the GPU", "gaps between kernels"
WHOLE = "the work of the GPU"
ALIKE = 0.9  # of the largest part: a second one that is larger takes about the same
SAME = 1.05  # of the step: host work of other steps that is hardly more than that
PACED = 0.9  # of a step: where the host's own work takes so much of it, GPU work that is shorter is hidden behind it


def parts(row: Mapping[str, Any]) -> dict[str, float]:
    """A step's milliseconds: reading at the measured bandwidth, other work of the GPU, and, where it is told, the time it had none.

    The host's time is no part of it: it passes beside the GPU's. Where it is shorter, it is hidden behind that, and what the GPU
    idles lies between kernels.
    """
    if row.get("gpu_ms") is None:
        return {}
    idle = {GAPS if is_hidden(row) else IDLE: row["gpu_idle_ms"]} if row.get("gpu_idle_ms") is not None else {}
    if not row.get("floor_ms"):
        return {WHOLE: row["gpu_ms"], **idle}
    reading = min(row["floor_ms"], row["gpu_ms"])
    return {READING: reading, OTHER: row["gpu_ms"] - reading, **idle}


def is_hidden(row: Mapping[str, Any]) -> bool:
    """Whether the host is done with its work for a step before the GPU is: the GPU does not wait for it."""
    host, gpu = row.get("host_ms"), row.get("gpu_ms")
    return host is not None and gpu is not None and host < gpu


def is_paced(row: Mapping[str, Any]) -> bool:
    """Whether the step is as long as the host's work for it: a GPU that were faster would only wait longer."""
    host, gpu = row.get("host_ms"), row.get("gpu_ms")
    return host is not None and gpu is not None and host > gpu and host >= PACED * row["step_ms"]


def decides(row: Mapping[str, Any]) -> str | None:
    """`other GPU work dominates (...); the host works for 2 ms meanwhile`; None where no trace told the GPU's part."""
    split = parts(row)
    if not split:
        return None
    if is_paced(row):
        return _paced(row, split)
    first, *others = sorted(split, key=lambda part: split[part], reverse=True)
    told = f"({', '.join(f'{part} {ms(value)}' for part, value in split.items())})"
    host = "" if row.get("host_ms") is None else f"; the host works for {ms(row['host_ms'])} meanwhile"
    if others and split[others[0]] >= ALIKE * split[first]:
        return f"{first} and {others[0]} take about the same {told}{host}"
    return f"{first} {'dominate' if first == GAPS else 'dominates'} {told}{host}"


def _paced(row: Mapping[str, Any], split: Mapping[str, float]) -> str:
    """Work that is timed in other steps, with the GPU drained after each, can take longer than a step in a row: that is said."""
    work, step = row["host_ms"], row["step_ms"]
    if work < step:
        pace = f"its work takes {ms(work)} of the step's {ms(step)}"
    elif work <= SAME * step:
        pace = f"its work takes as long as the step, {ms(step)}"
    else:
        pace = f"its work, timed by itself with the GPU drained after each step, takes {ms(work)}, more than the step's {ms(step)}"
    reading = f", {ms(split[READING])} of it {READING}" if READING in split else ""
    return f"the host sets the pace: {pace}; the GPU works for {ms(row['gpu_ms'])} meanwhile{reading}"


def share_of_most(row: Mapping[str, Any]) -> str | None:
    """The same in a few words: `45% of it other GPU work`."""
    split = parts(row)
    if not split:
        return None
    if is_paced(row):
        return "the host sets the pace"
    most = max(split, key=lambda part: split[part])
    return f"{split[most] / sum(split.values()):.0%} of it {most}"
