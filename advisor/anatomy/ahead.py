"""Where doing less is faster: a mode clearly ahead of one that does the same and more, at any batch size. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.anatomy.modes import TITLES
from advisor.anatomy.noise import AGREE
from advisor.stepping.figures import ms

# Mode -> those that do less of the same. Full graphs without compilation and piecewise graphs with it are not compared.
LESS = {
    "compile": ("none",),
    "full": ("none",),
    "piecewise": ("none", "compile"),
    "both": ("none", "compile", "full", "piecewise"),
}

Row = Mapping[str, Any]


def ahead(steps: Mapping[str, Mapping[int, Row]]) -> list[str]:
    """`steps`: mode -> batch -> steady row."""
    said = []
    for name, lesser in LESS.items():
        for less in lesser:
            more, fewer = steps.get(name, {}), steps.get(less, {})
            batches = [batch for batch in sorted(set(more) & set(fewer)) if _is_ahead(fewer[batch], more[batch])]
            if batches:
                told = ", ".join(f"batch {batch} ({_figures(more[batch], fewer[batch])})" for batch in batches)
                said.append(f"{TITLES[name]}: slower than '{TITLES[less]}', which does less, at {told}")
    return said


def _is_ahead(less: Row, more: Row) -> bool:
    """Quartiles apart, and by more than processes that run the same code may differ by."""
    return less["step_high_ms"] < more["step_low_ms"] and more["step_ms"] > (1 + AGREE) * less["step_ms"]


def _figures(more: Row, less: Row) -> str:
    told = f"{_quartiles(more)} against {_quartiles(less)}"
    host, gpu = more.get("host_ms"), more.get("gpu_ms")
    if host is None or gpu is None or host <= gpu:
        return told
    return f"{told}; its host works for {ms(host)}, the GPU for {ms(gpu)}"


def _quartiles(row: Row) -> str:
    return f"{ms(row['step_low_ms'])} to {ms(row['step_high_ms'])}"
