"""What the figures say, in sentences. Pure: the document's own parts in, lines out.

Every sentence states the figures that it follows from, and one that nothing was measured for is not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.attention.gpu_words import gpu_advice, gpu_ahead, no_gpu
from advisor.attention.grid import PHASES
from advisor.attention.noise_words import counted, noises
from advisor.attention.phrases import grouped, names_of, place, span, spot
from advisor.attention.regions import joined, region
from advisor.attention.rows import by_key, is_measured
from advisor.attention.winners import AHEAD, TIE, WINS, is_ahead

COMPARED = (WINS, TIE, AHEAD)



def sentences(document: Mapping[str, Any]) -> list[str]:
    """The order is that of the questions in docs/attention.md."""
    backends, cells, default = document["backends"], document["cells"], document["default"]
    return [
        *alone(document),
        *no_gpu(document),
        *unsteady(backends),
        *noises(document["noise"], default),
        *(line for phase in PHASES for line in winners(phase, [c for c in cells if c["phase"] == phase], default)),
        *(line for name in backends if name != default for line in beside_default(name, backends, default)),
        *(line for phase in PHASES for line in gpu_ahead(phase, cells, backends, default)),
        *same_prefill(backends),
        *other_graphs(backends, default),
        *advice(cells, backends, default),
        *gpu_advice(cells, backends, default),
    ]


# ---------------------------------------------------------------- sentences


def alone(document: Mapping[str, Any]) -> list[str]:
    """That there is nothing to compare, and why."""
    if error := document.get("backends_error"):
        return [f"this vLLM could not be asked which backends it takes ({error}): only its own choice is measured"]
    if len(document["legal"]) == 1:
        return [f"only {document['legal'][0]} is legal here, so there is nothing to compare: its figures stand alone"]
    return []


def unsteady(backends: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Cells whose steps differ among themselves by more than backends may; backends with the same ones together."""
    found: dict[str, list[str]] = {}
    for name, backend in backends.items():
        rows = [row for row in backend["rows"] if is_measured(row) and not row["steady"]]
        if rows:
            found.setdefault(", ".join(map(spot, rows)), []).append(name)
    return [
        f"{joined(names)}: steps were not steady in {told}: nothing below is said of these"
        for told, names in found.items()
    ]


def winners(phase: str, cells: Sequence[Mapping[str, Any]], default: str | None) -> list[str]:
    """Who wins where, and that the rest is a tie."""
    compared = [cell for cell in cells if cell["outcome"] in COMPARED]
    every, names, said = [place(cell) for cell in compared], names_of(phase), []
    for won in grouped(compared):
        where, first = region([place(cell) for cell in won], every, names), won[0]
        won_in = f"{phase} {where}" if where else f"{phase} everywhere"
        if first["outcome"] == AHEAD:
            several = len(first["tied"]) > 1
            are, rest = ("are", "equal among themselves") if several else ("is", "though not of all others")
            said.append(f"{joined(first['tied'])} {are} ahead of {default} in {won_in}, {rest}: {later(won, default)}")
        elif first["best"] == default:
            said.append(
                f"{default}, vLLM's own choice, wins {won_in}: the next one takes {span(won, 'over_next')} longer"
            )
        else:
            said.append(f"{first['best']} wins {won_in}: {later(won, default)}")
    ties = sum(cell["outcome"] == TIE for cell in compared)
    if ties:
        rest = (
            f"everywhere else a tie ({ties} of {counted(len(compared))})" if said else f"a tie in all {counted(ties)}"
        )
        said.append(f"{phase}: {rest}")
    return said


def keep(cells: Sequence[Mapping[str, Any]], default: str | None) -> list[str]:
    """That nothing is gained by another backend, where that was looked at."""
    compared = [cell for cell in cells if cell["outcome"] in COMPARED and cell["over_default"] is not None]
    if not compared or any(cell["outcome"] == AHEAD or _other_wins(cell, default) for cell in compared):
        return []
    return [f"no backend is ahead of {default}, vLLM's own choice, in any of {counted(len(compared))}: keep it"]


def advice(
    cells: Sequence[Mapping[str, Any]], backends: Mapping[str, Mapping[str, Any]], default: str | None
) -> list[str]:
    """The last word: keep vLLM's own choice, or which backends are worth a tune with the load that is served."""
    if kept := keep(cells, default):
        return kept
    compared = [cell for cell in cells if cell["outcome"] in COMPARED and cell["over_default"] is not None]
    ahead = {
        name: sum(name in cell["tied"] for cell in compared if cell["outcome"] == AHEAD or _other_wins(cell, default))
        for name in backends
    }
    return [
        f"{name} is ahead of {default}, vLLM's own choice, in {won} of {counted(len(compared))}, and behind in "
        f"{_behind(name, compared, backends, default)}: worth an `advisor tune` where such steps are most of the load"
        for name, won in ahead.items()
        if won
    ]


def _behind(
    name: str, cells: Sequence[Mapping[str, Any]], backends: Mapping[str, Mapping[str, Any]], default: str | None
) -> int:
    mine, own = (steady_rows(backends.get(one or "")) for one in (name, default))
    keys = {(cell["phase"], *place(cell)): cell["margin"] for cell in cells}
    both = [(own[key], mine[key], margin) for key, margin in keys.items() if key in own and key in mine]
    return sum(is_ahead(one, other, margin) for one, other, margin in both)


def beside_default(name: str, backends: Mapping[str, Mapping[str, Any]], default: str | None) -> list[str]:
    """How long a backend's steps take beside those of vLLM's own choice."""
    told = []
    for phase in PHASES:
        ratios = [ratio for (kind, *_), ratio in ratios_to(name, backends, default).items() if kind == phase]
        if ratios:
            low, high = (f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}" for ratio in (min(ratios), max(ratios)))
            told.append(f"{low if low == high else f'{low} to {high}'} times in {phase}")
    return [f"{name} takes, beside {default}: {', '.join(told)}"] if told else []


def same_prefill(backends: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Models with MLA have a backend of its own for prompts, which none of the settings changes; some run short ones themselves."""
    ran = {name: one["active"] for name, one in backends.items() if one["active"].get("mla_prefill_backend")}
    used = {active["mla_prefill_backend"] for active in ran.values()}
    if len(used) != 1 or len(ran) < 2:
        return []
    own = {name: active["mla_prompts_as_decode"] for name, active in ran.items() if active.get("mla_prompts_as_decode")}
    if not own:
        return [
            f"prompts run MLA's prefill backend {used.pop()} with all of them: differences in prefill are not the backends'"
        ]
    short = ", ".join(f"{name} of up to {tokens} tokens" for name, tokens in own.items())
    return [
        f"prompts of more than {max(own.values())} tokens run MLA's prefill backend {used.pop()} with all of them: differences in "
        f"prefill are not the backends' there; shorter ones are run like decode by {short}"
    ]


def other_graphs(backends: Mapping[str, Mapping[str, Any]], default: str | None) -> list[str]:
    """Backends that cannot be captured as vLLM's own choice is: vLLM gives them other graphs, which show in their steps."""
    own = _graphs(backends.get(default or ""))
    found: dict[str, list[str]] = {}
    for name, backend in backends.items():
        if own and (mode := _graphs(backend)) and mode != own:
            found.setdefault(mode, []).append(name)
    return [
        f"vLLM gives {joined(names)} {mode} graphs and {default} {own}: what differs between them is not the attention alone"
        for mode, names in found.items()
    ]


def _graphs(backend: Mapping[str, Any] | None) -> str | None:
    return ((backend or {}).get("resolved") or {}).get("cudagraph_mode")


# ---------------------------------------------------------------- figures





def ratios_to(
    name: str, backends: Mapping[str, Mapping[str, Any]], default: str | None
) -> dict[tuple[str, int, int], float]:
    """Cell -> the backend's step over that of vLLM's own choice, where both are steady."""
    mine, own = (steady_rows(backends.get(one or "")) for one in (name, default))
    return {key: row["step_ms"] / own[key]["step_ms"] for key, row in mine.items() if key in own}


def steady_rows(backend: Mapping[str, Any] | None) -> dict[tuple[str, int, int], Mapping[str, Any]]:
    rows = backend["rows"] if backend else ()
    return by_key([row for row in rows if is_measured(row) and row["steady"]])


def later(cells: Iterable[Mapping[str, Any]], default: str | None) -> str:
    """How far the default is behind; where it was not measured, how far the next one is."""
    cells = list(cells)
    if all(cell["over_default"] is not None for cell in cells):
        return f"{default} takes {span(cells, 'over_default')} longer"
    return f"the next one takes {span(cells, 'over_next')} longer"



def _other_wins(cell: Mapping[str, Any], default: str | None) -> bool:
    return cell["outcome"] == WINS and cell["best"] != default
