"""Claims about CUDA graphs that people quote, each beside what was measured. Pure.

A claim about one size of model and weight is answered only for such a model; for any other the answer says that. Where a figure is
missing, the answer says which and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from advisor.anatomy.missing import told_missing, why_missing
from advisor.anatomy.modes import TITLES
from advisor.anatomy.parts import is_hidden
from advisor.anatomy.paying import PAYS
from advisor.anatomy.words import by_batch, piecewise_shares
from advisor.stepping.figures import change, ms

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
    if row and row.get("launches") and row.get("host_ms"):
        each = row["host_ms"] * 1000 / row["launches"]
        said.append(
            f"{each:.1f} us of host work a launch in a step without optimisation ({row['launches']:.0f} launches, "
            f"{ms(row['host_ms'])}; Python and PyTorch included)"
        )
    return "; ".join(said) or "not measured: nothing was launched on a GPU"


def host_overhead(document: Mapping[str, Any], steps: Steps) -> str:
    """What an overhead of the host is: time in which the GPU waits for it. The host's time alone is none, it may be hidden."""
    if other := _other_model(document, "8B", 16):
        return other
    rows = {name: rows[1] for name, rows in steps.items() if 1 in rows and rows[1].get("gpu_ms") is not None}
    if rows:
        told = "; ".join(f"'{TITLES[name]}' {_waits(row)}" for name, row in rows.items())
        what = "the GPU waits for the host (its idle time, where the host works longer)"
        return f"share of the step, at batch 1, in which {what}: {told}"
    reasons = [rows[1]["reason"] for rows in steps.values() if 1 in rows and rows[1].get("reason")]
    return f"not measured: {reasons[0]}" if reasons else told_missing(document["modes"], ("none",), 1)


def _waits(row: Mapping[str, Any]) -> str:
    """The share of `gpu_idle_ms`, unless the host's work is shorter than the GPU's: that the GPU does not wait for."""
    idle, host, gpu = row["gpu_idle_ms"], row["host_ms"], ms(row["gpu_ms"])
    share = None if idle is None else f"{idle / row['step_ms']:.0%}"
    if is_hidden(row):
        gaps = "" if share is None else f"; the {share} that it idles lie between kernels"
        return f"none (the host's {ms(host)} are hidden behind the GPU's {gpu}{gaps})"
    works = f"the GPU works for {gpu} of {ms(row['step_ms'])}" + ("" if host is None else f", the host for {ms(host)}")
    return f"{share or 'not told apart from none'} ({works})"


def eight(document: Mapping[str, Any], steps: Steps) -> str:
    return _other_model(document, "8B", 16) or _graphs(document, steps)


def int4(document: Mapping[str, Any], steps: Steps) -> str:
    return _other_model(document, "1-3B", 4) or _graphs(document, steps)


def piecewise(document: Mapping[str, Any], steps: Steps) -> str:
    """The shares' range, and where the ends of it were."""
    shares = piecewise_shares(steps)
    if not shares:
        asked = ("compile", "piecewise", "both")
        batch = min((batch for name in asked for batch in steps.get(name, {})), default=1)
        if any(why_missing(document["modes"], name, batch) for name in asked):
            return told_missing(document["modes"], asked, batch)
        return f"full graphs gain less than {PAYS:.0%} over compilation alone, of which no share is told"
    ends = sorted({min(shares, key=lambda batch: shares[batch]), max(shares, key=lambda batch: shares[batch])})
    return ", ".join(f"{shares[batch]:.0%} at batch {batch}" for batch in ends) + (
        "" if len(shares) <= 2 else f", the lowest and the highest of {len(shares)} batch sizes"
    )


def _graphs(document: Mapping[str, Any], steps: Steps) -> str:
    """`batch 1: without 5.5 ms, graphs only 5.1 ms (-7%), ...`. What the GPU needs without graphs tells a slow host from a fast."""
    plain = steps.get("none", {}).get(1)
    names = {"compile": "compile only", "full": "graphs only", "both": "both"}
    found = {name: steps[name][1]["step_ms"] for name in names if 1 in steps.get(name, {})}
    if plain is None or not {"full", "both"} & set(found):
        return told_missing(document["modes"], ("none", "full", "both"), 1)
    told = [f"{names[name]} {ms(value)} ({change(value / plain['step_ms'])})" for name, value in found.items()]
    absent = {name: why_missing(document["modes"], name, 1) for name in names if name not in found}
    told += [f"'{TITLES[name]}' {why}" for name, why in absent.items() if why and "steady" in why]
    gpu = plain.get("gpu_ms")
    works = f"; of the step without, the GPU works for {ms(gpu)}" if gpu is not None else ""
    return f"batch 1: without {ms(plain['step_ms'])}, {', '.join(told)}{works}"


_SIZES = {"8B": (7.0e9, 9.0e9), "1-3B": (0.9e9, 3.5e9)}
_WIDTHS = {16: "16-bit", 8: "8-bit", 4: "INT4"}


def _other_model(document: Mapping[str, Any], size: str, bits: int) -> str | None:
    """Why the claim says nothing about this model; None where it does."""
    loaded = document.get("loaded") or {}
    count, (least, most), here = loaded.get("parameters"), _SIZES[size], _bits(loaded)
    if here != bits:
        return f"does not apply: the claim is about {_WIDTHS[bits]} weights, these are {_WIDTHS[here]}"
    if count and least <= count <= most:
        return None
    counted = f"{count / 1e9:.2g}B parameters" if count else "a size that is not known"
    return f"does not apply: the claim is about {size}, this model has {counted}"


def _bits(loaded: Mapping[str, Any]) -> int:
    """Of most weights: 4, 8 or 16. Packed ones are told apart by their names, 8-bit ones by the bytes that all take."""
    if loaded.get("weight_bits"):
        return 4
    sizes = loaded.get("weights") or {}
    total = sum(sizes.get(f"{kind}_bytes", 0) for kind in ("dense", "embedding", "experts"))
    return 8 if total and loaded.get("parameters") and total < 1.5 * loaded["parameters"] else 16


CLAIMS: dict[str, Callable[[Mapping[str, Any], Steps], str]] = {
    "launching a kernel costs the host 5 to 10 microseconds": launch_cost,
    "about 9% of an 8B decode step is host overhead": host_overhead,
    "8B: graphs take a decode step from 5.5 to 5.1 ms, with compilation 5.0 ms": eight,
    "INT4, 1 to 3B: graphs take a decode step from 1.5 to 1.0 ms (33%)": int4,
    "piecewise graphs give about 80% of what full graphs gain": piecewise,
}
