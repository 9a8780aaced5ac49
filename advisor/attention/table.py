"""The figures on a terminal: a table a phase, each backend beside vLLM's own choice, then sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from advisor.attention.grid import MIXED, PHASES
from advisor.attention.phrases import names_of, place, spot
from advisor.attention.rows import Key, by_key, is_measured, is_traced
from advisor.attention.winners import AHEAD, ALONE, TIE, UNSTEADY, WINS
from advisor.stepping.figures import bare_ms
from advisor.stepping.tables import WIDTH, drawn, table

_COLUMN = 22  # characters, of the widest name and what is around it
_NAMED = 6  # backends or cells with one reason
_NO_LIBRARY = re.compile(r"cannot import name '(_vllm_fa\d_C)'")
_NOT_CONSIDERED = "not among the backends vLLM considers"


def told(document: Mapping[str, Any], width: int = WIDTH) -> str:
    """Everything, in the order in which it answers: steps of each phase, starts, words, and what there is no figure for."""
    phases = [made(document, phase) for phase in PHASES for made in (_phase, _gpu)]
    tables = [*phases, _starts(document["backends"])]
    wide = max(width, _COLUMN * (len(document["backends"]) + 3))  # figures that break in two are not read
    texts = [_head(document), *(drawn(one, wide) for one in tables if one.row_count)]
    return "\n\n".join(filter(None, [*texts, "\n".join([*document["words"], *missing(document)])]))


def _head(document: Mapping[str, Any]) -> str:
    model, versions = document["model"], document["versions"]
    weights = " (random weights)" if model["random_weights"] else ""
    default = f"vLLM's own choice: {document['default']}"
    return f"{model['name']}{weights}, {document['gpu']['name']}, vLLM {versions['vllm']}; {default}"


def _phase(document: Mapping[str, Any], phase: str) -> Table:
    prompt = f", with a prompt of {document['chunk']} tokens" if phase == MIXED else ""
    header, lines = phase_lines(document, phase)
    made = table(f"{phase} step, ms (median){prompt}", (), header)
    for line in lines:
        made.add_row(*line)
    return made


def _gpu(document: Mapping[str, Any], phase: str) -> Table:
    header, lines = gpu_lines(document, phase)
    made = table(f"GPU time of a {phase} step, ms", (), header)
    for line in lines:
        made.add_row(*line)
    return made


def phase_lines(document: Mapping[str, Any], phase: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Cells down, backends across: vLLM's own choice in milliseconds, the others in milliseconds and beside it."""
    rows = {name: _rows(backend, phase) for name, backend in document["backends"].items()}
    shown, default = [name for name, found in rows.items() if found], document["default"]
    lines = []
    for cell in (one for one in document["cells"] if one["phase"] == phase):
        key = (phase, *place(cell))
        own = rows.get(default, {}).get(key)
        figures = [figure(rows[name].get(key), None if name == default else own) for name in shown]
        lines.append((str(cell["batch"]), str(cell["context"]), *figures, outcome(cell)))
    return (*names_of(phase), *shown, "ahead"), lines


def gpu_lines(document: Mapping[str, Any], phase: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The same of the GPU's time in a step; no lines where nothing was traced."""
    traced = {
        name: {key: row for key, row in _rows(backend, phase).items() if is_traced(row)}
        for name, backend in document["backends"].items()
    }
    shown, default = [name for name, rows in traced.items() if rows], document["default"]
    lines = []
    for cell in (one for one in document["cells"] if one["phase"] == phase):
        key = (phase, *place(cell))
        own = traced.get(default, {}).get(key) if default in shown else None
        figures = [gpu_figure(traced[name].get(key), None if name == default else own) for name in shown]
        if any(figures):
            lines.append((str(cell["batch"]), str(cell["context"]), *figures, outcome(cell["gpu"]) if "gpu" in cell else ""))
    return (*names_of(phase), *shown, "ahead"), lines


def _rows(backend: Mapping[str, Any], phase: str) -> dict[Key, Mapping[str, Any]]:
    return by_key([row for row in backend["rows"] if row["phase"] == phase and is_measured(row)])


def figure(row: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> str:
    """`12.3`, `13.1 +7%`: the step takes 7% longer than that of vLLM's own choice; `~` marks steps that were not steady."""
    if row is None:
        return ""
    mark = "" if row["steady"] else "~"
    beside = f" {round((row['step_ms'] / own['step_ms'] - 1) * 100):+d}%" if own else ""
    return f"{mark}{bare_ms(row['step_ms'])}{beside}"


def gpu_figure(row: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> str:
    """As figure, of the GPU's time."""
    beside = f" {round((row['gpu_ms'] / own['gpu_ms'] - 1) * 100):+d}%" if row and own else ""
    return f"{bare_ms(row['gpu_ms'])}{beside}" if row else ""


def outcome(cell: Mapping[str, Any]) -> str:
    """Who is ahead in a cell."""
    words = {TIE: "tie", ALONE: "-", UNSTEADY: "unsteady", WINS: cell["best"], AHEAD: "=".join(cell["tied"])}
    return words[cell["outcome"]]


def _starts(backends: Mapping[str, Mapping[str, Any]]) -> Table:
    made = table(
        "start, s", ("", "ran"), ("start", "imports", "load", "compile", "capture", "compile cache", "KV tokens")
    )
    for name, backend in backends.items():
        start, tokens = backend["start"], backend["resolved"].get("kv_tokens")
        seconds = [start.get(part) for part in ("start_s", "imports_s", "load_s", "compile_s", "capture_s")]
        told = ["" if value is None else f"{value:.1f}" for value in seconds]
        made.add_row(name, ran(backend), *told, start.get("cache") or "", f"{tokens:,}" if tokens else "")
    return made


def ran(backend: Mapping[str, Any]) -> str:
    """`FLASH_ATTN, FlashAttention 3`, as the engine said; how it ended where it said nothing."""
    active = backend["active"]
    names = ", ".join(active.get("backends") or ()) or backend["status"]
    version = active.get("flash_attention_version")
    return f"{names}, FlashAttention {version}" if version else names


# ---------------------------------------------------------------- what there is no figure for


def missing(document: Mapping[str, Any]) -> list[str]:
    """Backends that were not run or broke off, and cells without a figure, each reason once."""
    backends = document["backends"]
    said = [f"{name}: {one['status']}: {one['reason']}" for name, one in backends.items() if one["reason"]]
    if others := [name for name in document["legal"] if name not in backends]:
        said.append(f"legal and not measured yet: {', '.join(others)}")
    said += _refused(document["refused"])
    said += [f"left out: {where}: {reason}" for reason, where in _by_reason(document["left_out"], spot)]
    found: dict[str, list[str]] = {}
    for name, backend in backends.items():
        for reason, where in _by_reason([row for row in backend["rows"] if not is_measured(row)], spot):
            found.setdefault(f"no figure of {where}: {reason}", []).append(name)
        for reason, where in _by_reason(_lost(backend), spot, "gpu_reason"):
            found.setdefault(f"no GPU time of {where}: {reason}", []).append(name)
    return said + [f"{', '.join(names)}: {told}" for told, names in found.items()]


def _lost(backend: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows whose trace told nothing; those of older files were not traced."""
    return [row for row in backend["rows"] if row.get("gpu_reason")]


def _refused(refused: Sequence[Mapping[str, str]]) -> list[str]:
    """Those that vLLM does not even consider, and a long rest, are left to the JSON."""
    considered = [one for one in refused if not one["reason"].startswith(_NOT_CONSIDERED)]
    said = [{**one, "reason": plain(one["reason"])} for one in considered]
    return [f"{names} refused: {reason}" for reason, names in _by_reason(said, lambda one: one["backend"])]


def plain(reason: str) -> str:
    """vLLM's reason with what it means to a person; in the JSON it stands as vLLM said it."""
    if library := _NO_LIBRARY.search(reason):
        return f"its library {library[1]} cannot be loaded in this installation"
    return reason.replace("kv_cache_dtype not supported", "it does not take this --kv-cache-dtype")


def _by_reason(
    found: Sequence[Mapping[str, Any]], name: Callable[[Mapping[str, Any]], str], reason: str = "reason"
) -> list[tuple[str, str]]:
    """(reason, names of what has it)."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        reasons.setdefault(one[reason], []).append(name(one))
    return [(told, _shortened(names)) for told, names in reasons.items()]


def _shortened(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
