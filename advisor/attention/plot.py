"""Draws the heat map of `advisor attention`: a panel a phase, batch size across, context up, the winner's colour in each square.

Colours are told apart by people who are colour-blind, and every square says in letters who wins.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.attention.plot_parts import EMPTY, NOBODY, SEVERAL, SINGLE, Panel, Square, named, panels, short
from advisor.errors import EnvironmentMismatch
from advisor.report.plot_files import write_plot

# After Okabe and Ito; the first one is that of vLLM's own choice.
COLORS = ("#56B4E9", "#E69F00", "#2DBB8F", "#CC79A7", "#D55E00", "#F0E442", "#B0A4E3", "#C7C77F", "#F2B8B5")
_PLAIN = {NOBODY: "#D9D9D9", SEVERAL: "#F6E6D2", SINGLE: "#FFFFFF", EMPTY: "#FFFFFF"}
# Inches.
_SQUARE_W, _SQUARE_H, _LEFT, _GAP, _RIGHT = 0.82, 0.62, 0.75, 0.85, 0.2
_TITLE, _SUBTITLE, _PANEL_TITLE, _AXIS, _LINE, _LEAST_W = 0.24, 0.19, 0.3, 0.55, 0.19, 7.0
_FULL, _SMALL, _TINY = 9.5, 7.5, 6.5  # points
_CHARACTERS, _SUBTITLE_CHARACTERS, _TITLE_CHARACTERS = 17.0, 14.0, 9.0  # an inch of the note, and of what stands above
_NOTE = (
    "+7%: the step of vLLM's own choice takes 7% longer than the winner's; where that one wins, 'next +7%': that of the next "
    "backend. Milliseconds: the best step. Tie: no backend is ahead of vLLM's own choice by more than the noise. "
    "Chunk: tokens of the prompt in a mixed step."
)


def write_heat_map(document: Mapping[str, Any], path: Path) -> None:
    """Raises EnvironmentMismatch where nothing was measured or the file cannot be written, and what write_plot raises."""
    shown = panels(document)
    if not shown:
        raise EnvironmentMismatch(f"{path}: there is nothing to draw, no step was measured")
    try:
        write_plot(path, lambda: draw(document, shown))
    except OSError as error:
        raise EnvironmentMismatch(f"{path} cannot be written: {error.strerror}", "give another --plot") from None


def draw(document: Mapping[str, Any], shown: Sequence[Panel]) -> Any:
    """A matplotlib Figure, as wide and as high as its squares need."""
    from matplotlib.figure import Figure

    widths = [len(panel.columns) * _SQUARE_W for panel in shown]
    width = max(_LEAST_W, _LEFT + sum(widths) + _GAP * (len(shown) - 1) + _RIGHT)
    squares = max(len(panel.rows) for panel in shown) * _SQUARE_H
    title, subtitle, notes = (
        textwrap.wrap(text, int(width * characters))
        for text, characters in (
            (_title(document), _TITLE_CHARACTERS), (_subtitle(document), _SUBTITLE_CHARACTERS), (_NOTE, _CHARACTERS)
        )
    )  # fmt: skip
    above = 0.15 + _TITLE * len(title) + _SUBTITLE * len(subtitle)
    legend = _legend(document, shown)
    below = _LINE * (-(-len(legend) // _columns(width)) + len(notes)) + 0.2
    height = above + _PANEL_TITLE + squares + _AXIS + below
    figure, left = Figure(figsize=(width, height)), _LEFT
    lower = 1 - (0.14 + _TITLE * len(title)) / height
    figure.text(0.15 / width, 1 - 0.12 / height, "\n".join(title), fontsize=11.5, fontweight="bold", va="top")
    figure.text(0.15 / width, lower, "\n".join(subtitle), fontsize=8.5, va="top")
    colors = _colors(document)
    for panel, wide in zip(shown, widths, strict=True):
        high = len(panel.rows) * _SQUARE_H
        bottom = height - above - _PANEL_TITLE - high
        _panel(figure.add_axes((left / width, bottom / height, wide / width, high / height)), panel, colors)
        left += wide + _GAP
    figure.legend(
        handles=legend, loc="lower left", bbox_to_anchor=(0.15 / width, (0.12 + _LINE * len(notes)) / height),
        ncols=_columns(width), borderaxespad=0.0, fontsize=8, columnspacing=1.4, labelspacing=0.35,
    )  # fmt: skip
    figure.text(0.15 / width, 0.1 / height, "\n".join(notes), fontsize=_SMALL, va="bottom", linespacing=1.35)
    return figure


def _title(document: Mapping[str, Any]) -> str:
    model = document["model"]
    weights = " (random weights)" if model["random_weights"] else ""
    return f"Attention by phase: {model['name']}{weights}"


def _subtitle(document: Mapping[str, Any]) -> str:
    default, version = document["default"], document["versions"]["vllm"]
    return f"{document['gpu']['name']}, vLLM {version}, {document['date'][:10]}. vLLM's own choice: {default}"


def _columns(width: float) -> int:
    return max(1, int(width // 2.4))


def _colors(document: Mapping[str, Any]) -> dict[str, str]:
    """By the order of all legal backends, so that one has the same colour in every plot of a model."""
    names = list(dict.fromkeys([document["default"], *document["legal"], *document["backends"]]))
    return {name: COLORS[index % len(COLORS)] for index, name in enumerate(names)} | _PLAIN


def _legend(document: Mapping[str, Any], shown: Sequence[Panel]) -> list[Any]:
    from matplotlib.patches import Patch

    colors = _colors(document)
    found = [
        Patch(facecolor=colors[name], edgecolor="#606060", label=f"{short(name)}: {name}")
        for name in named(document, list(colors))
        if name not in _PLAIN
    ]
    there = {square.owner for panel in shown for square in panel.squares}
    words = {NOBODY: "a tie", SEVERAL: "several ahead, equal among themselves"}
    return found + [
        Patch(facecolor=_PLAIN[name], edgecolor="#606060", label=text) for name, text in words.items() if name in there
    ]


def _panel(axes: Any, panel: Panel, colors: Mapping[str, str]) -> None:
    axes.set_xlim(0, len(panel.columns))
    axes.set_ylim(0, len(panel.rows))
    for square in panel.squares:
        _square(axes, square, colors)
    axes.set_xticks([index + 0.5 for index in range(len(panel.columns))], [str(batch) for batch in panel.columns])
    axes.set_yticks([index + 0.5 for index in range(len(panel.rows))], [str(context) for context in panel.rows])
    axes.tick_params(length=0, labelsize=8)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    prefill = panel.names[1] == "length"
    axes.set_xlabel("prompts in a step" if prefill else "requests (batch size)")
    axes.set_ylabel("prompt, tokens" if prefill else "context, tokens")
    axes.set_title(panel.title)


def _square(axes: Any, square: Square, colors: Mapping[str, str]) -> None:
    from matplotlib.patches import Rectangle

    look = {"facecolor": colors[square.owner], "edgecolor": "#606060", "linewidth": 0.7}
    axes.add_patch(Rectangle((square.column, square.row), 1, 1, clip_on=False, **look))
    faint = square.owner == EMPTY
    count = len(square.lines)
    for index, line in enumerate(square.lines):
        size = (
            _TINY
            if faint or square.owner == SINGLE or (index == count - 1 and count > 1)
            else _FULL
            if index == 0
            else _SMALL
        )
        axes.text(
            square.column + 0.5, square.row + (count - index - 0.5) / count * 0.84 + 0.08, line, ha="center", va="center",
            fontsize=size, fontweight="bold" if index == 0 and not faint else "normal",
            color="#707070" if faint else "#000000",
        )  # fmt: skip
