"""Claims about CUDA graphs that people quote, each beside what was measured. Pure.

A claim about one size of model is answered only for a model of that size; for any other the answer says that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from advisor.anatomy.modes import TITLES
from advisor.anatomy.words import by_batch, host_shares, ms, piecewise_shares

Steps = Mapping[str, Mapping[int, Mapping[str, Any]]]


def claims(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """[{"claim", "measured"}], in a fixed order; `measured` says so where nothing was."""
    steps = {name: by_batch(mode) for name, mode in document["modes"].items()}
    return [{"claim": claim, "measured": found(document, steps)} for claim, found in CLAIMS.items()]


def launch_cost(document: Mapping[str, Any], steps: Steps) -> str:
    """The host's cost of a launch: alone, through PyTorch, and as a step without optimisation pays it."""
    cost, said = document.get("launch"), []
    if cost:
        said.append(f"{cost['bare_us']:.1f} us for a bare kernel, {cost['op_us']:.1f} us for one operation of PyTorch")
    row = steps.get("none", {}).get(1)
    if row and row.get("launches") and row.get("host_work_ms"):
        each = row["host_work_ms"] * 1000 / row["launches"]
        said.append(
            f"{each:.1f} us of host work a launch in a step without optimisation ({row['launches']:.0f} launches, "
            f"{ms(row['host_work_ms'])}; Python and PyTorch included)"
        )
    return "; ".join(said) or "not measured: nothing was launched on a GPU"


def host_overhead(document: Mapping[str, Any], steps: Steps) -> str:
    if other := _other_size(document, "8B"):
        return other
    shares = {name: host_shares(steps.get(name, {})).get(1) for name in ("none", "compile", "both")}
    told = [f"{TITLES[name]} {share:.0%}" for name, share in shares.items() if share is not None]
    return f"at batch 1 the GPU has nothing to do for this share of the step: {', '.join(told)}" if told else _NOTHING


def eight(document: Mapping[str, Any], steps: Steps) -> str:
    return _other_size(document, "8B") or _graphs(steps)


def int4(document: Mapping[str, Any], steps: Steps) -> str:
    if document.get("loaded", {}).get("weight_bits") != 4:
        return "does not apply: the weights are not INT4"
    return _other_size(document, "1-3B") or _graphs(steps)


def piecewise(_: Mapping[str, Any], steps: Steps) -> str:
    shares = piecewise_shares(steps)
    if not shares:
        return _NOTHING
    return f"{min(shares.values()):.0%} to {max(shares.values()):.0%} (batch {min(shares)} to {max(shares)})"


def _graphs(steps: Steps) -> str:
    """`batch 1: 5.50 ms without, 5.10 ms with graphs only, ...`."""
    names = {"none": "without", "compile": "compile only", "full": "graphs only", "both": "both"}
    told = [f"{said} {ms(steps[name][1]['step_ms'])}" for name, said in names.items() if 1 in steps.get(name, {})]
    graphed = [steps[name][1]["step_ms"] for name in ("full", "both") if 1 in steps.get(name, {})]
    if not graphed or 1 not in steps.get("none", {}):
        return _NOTHING
    return f"batch 1: {', '.join(told)} ({(min(graphed) / steps['none'][1]['step_ms'] - 1) * 100:+.0f}%)"


_SIZES = {"8B": (7.0e9, 9.0e9), "1-3B": (0.9e9, 3.5e9)}
_NOTHING = "not measured: these modes were not run, or have no graphs here"


def _other_size(document: Mapping[str, Any], size: str) -> str | None:
    """Why the claim says nothing about this model; None where it does."""
    count = document.get("loaded", {}).get("parameters")
    least, most = _SIZES[size]
    if count and least <= count <= most:
        return None
    here = f"{count / 1e9:.2g}B parameters" if count else "a size that is not known"
    return f"does not apply: the claim is about {size}, this model has {here}"


CLAIMS: dict[str, Callable[[Mapping[str, Any], Steps], str]] = {
    "launching a kernel costs the host 5 to 10 microseconds": launch_cost,
    "about 9% of an 8B decode step is host overhead": host_overhead,
    "8B: graphs take a decode step from 5.5 to 5.1 ms, with compilation 5.0 ms": eight,
    "INT4, 1 to 3B: graphs take a decode step from 1.5 to 1.0 ms (33%)": int4,
    "piecewise graphs give about 80% of what full graphs gain": piecewise,
}
