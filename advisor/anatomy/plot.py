"""Draws the plot of an anatomy: steps of all modes over the floor, prefill and starts beside them, below what steps are made of.

Everything has its place in inches, so that no text meets another however many modes and batch sizes there are.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.anatomy.plot_panels import (
    ABOVE,
    FLOOR,
    HOST_LINE,
    draw_prefill,
    draw_shares,
    draw_starts,
    draw_steps,
    mode_line,
    numbers_height,
    part_fill,
)
from advisor.anatomy.plot_parts import HOST, PARTS, Picture, Shown, picture
from advisor.errors import AdvisorError, EnvironmentMismatch
from advisor.report.plot_files import write_plot

WIDTH = 11.0  # inches, as all that follows
_LEFT, _RIGHT, _TOP, _BETWEEN = 0.6, 0.2, 0.15, 0.3
_STEPS, _PREFILL, _START = 4.7, 2.2, 2.4  # widths of the upper panels
_UPPER, _SHARES = 2.5, 1.6  # heights of panels
_LINE, _LABELS = 0.18, 0.55  # heights of a line of text, and of what stands below a panel
_LEGEND_COLUMNS, _LEGEND_LINE = 4, 0.2
_CHARACTERS = 85, 145, 48  # that fit into the title, a note, a line above a panel


def plot_anatomy(
    document: Mapping[str, Any], data: Path, asked: Path | None, note: Callable[[str], None]
) -> Path | None:
    """Write the plot, to `asked` or beside `data`; returns its path. Raises AdvisorError where it was asked for and cannot be had.

    Where nobody asked, a plot that cannot be had is a note: figures that took an hour are not lost for it.
    """
    path = asked or data.with_suffix(".svg")
    try:
        _write(document, path)
    except AdvisorError as problem:
        if asked:
            raise
        note(f"no plot: {problem.problem}")
        return None
    return path


def _write(document: Mapping[str, Any], path: Path) -> None:
    shown = picture(document)
    if not shown.modes:
        raise EnvironmentMismatch(f"{path}: there is nothing to draw, no step was measured")
    try:
        write_plot(path, lambda: draw(shown))
    except OSError as error:
        raise EnvironmentMismatch(f"{path} cannot be written: {error.strerror}", "give another --plot") from None


def draw(shown: Picture) -> Any:
    """A matplotlib Figure, whose height follows from what there is to show."""
    from matplotlib.figure import Figure

    columns = 2 if len(shown.modes) in (1, 2, 4) else 3
    width = (WIDTH - _LEFT - _RIGHT - _BETWEEN * (columns - 1)) / columns
    rows = [shown.modes[first : first + columns] for first in range(0, len(shown.modes), columns)]
    numbers = numbers_height(shown, width)
    below = [line for text in shown.notes for line in textwrap.wrap(text, _CHARACTERS[1], subsequent_indent="    ")]
    entries = len(shown.modes) + 2 * bool(shown.floor)
    strips = [
        0.6 + _LINE * len(shown.best), 0.4 + _LEGEND_LINE * -(-entries // _LEGEND_COLUMNS), _UPPER + _LABELS + 0.1, 0.55,
        *(_above(row) + numbers + _SHARES + _LABELS for row in rows), _LINE * len(below) + 0.1,
    ]  # fmt: skip
    tops = [_TOP, *(_TOP + top for top in itertools.accumulate(strips))]
    sheet = _Sheet(Figure(figsize=(WIDTH, tops[-1])), tops[-1])
    _head(sheet, shown)
    _mode_legend(sheet, tops[1], shown)
    _upper(sheet, tops[2], shown)
    _part_legend(sheet, tops[3], shown)
    for top, row in zip(tops[4:], rows, strict=False):
        _row(sheet, top, _above(row) + numbers, row, width, shown)
    for number, line in enumerate(below):
        sheet.text(_LEFT, tops[-2] + _LINE * number, line, fontsize=7.5)
    return sheet.figure


class _Sheet:
    """A figure whose places are given in inches from the upper left corner."""

    def __init__(self, figure: Any, height: float):
        self.figure, self.height = figure, height

    def at(self, left: float, top: float) -> tuple[float, float]:
        return left / WIDTH, 1 - top / self.height

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        x, y = self.at(left, top + height)
        return self.figure.add_axes((x, y, width / WIDTH, height / self.height))

    def text(self, left: float, top: float, text: str, **how: Any) -> None:
        self.figure.text(*self.at(left, top), text, va="top", **how)

    def legend(self, top: float, handles: Sequence[Any], columns: int) -> None:
        self.figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=self.at(_LEFT, top), ncols=columns,
            borderaxespad=0.0, handlelength=3.0, columnspacing=1.8, labelspacing=0.35,
        )  # fmt: skip


def _head(sheet: _Sheet, shown: Picture) -> None:
    most = _CHARACTERS[0]
    title = shown.title if len(shown.title) <= most else f"{shown.title[: most - 3]}..."
    sheet.text(_LEFT, _TOP, title, fontsize=12, fontweight="bold")
    sheet.text(_LEFT, _TOP + 0.26, shown.subtitle, fontsize=9)
    for number, line in enumerate(shown.best):
        sheet.text(_LEFT, _TOP + 0.5 + _LINE * number, line, fontsize=8.5)


def _mode_legend(sheet: _Sheet, top: float, shown: Picture) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], label=mode.title, **mode_line(mode.name)) for mode in shown.modes]
    if shown.floor:
        handles.append(Line2D([], [], label=PARTS["floor"], **FLOOR))
        handles.append(Patch(facecolor=ABOVE, label="best step above the floor"))
    sheet.legend(top, handles, _LEGEND_COLUMNS)


def _upper(sheet: _Sheet, top: float, shown: Picture) -> None:
    draw_steps(sheet.axes(_LEFT, top, _STEPS, _UPPER), shown, _STEPS)
    left = _LEFT + _STEPS + 2 * _BETWEEN  # room for the numbers beside the axis
    draw_prefill(sheet.axes(left, top, _PREFILL, _UPPER), shown, _PREFILL)
    draw_starts(sheet.axes(WIDTH - _RIGHT - _START, top, _START, _UPPER), shown, _UPPER)


def _part_legend(sheet: _Sheet, top: float, shown: Picture) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    sheet.text(_LEFT, top, "Shares of a step; above each bar the whole step in ms", fontsize=8.5, fontweight="bold")
    handles: list[Any] = [Patch(label=label, **part_fill(name)) for name, label in shown.kinds.items()]
    if any(bar.host_ms is not None for mode in shown.modes for bar in mode.bars):
        handles.append(Line2D([], [], label=HOST, **HOST_LINE))
    sheet.legend(top + 0.23, handles, len(handles))


def _same(mode: Shown) -> list[str]:
    return textwrap.wrap(f"the same here: {'; '.join(mode.same)}", _CHARACTERS[2]) if mode.same else []


def _above(row: Sequence[Shown]) -> float:
    """Height of the names above a row of panels."""
    return 0.2 + 0.15 * max(len(_same(mode)) for mode in row)


def _row(sheet: _Sheet, top: float, above: float, row: Sequence[Shown], width: float, shown: Picture) -> None:
    for number, mode in enumerate(row):
        left = _LEFT + number * (width + _BETWEEN)
        sheet.text(left, top, mode.title, fontsize=8.5, fontweight="bold")
        for index, line in enumerate(_same(mode)):
            sheet.text(left, top + 0.18 + 0.15 * index, line, fontsize=7)
        axes = sheet.axes(left, top + above, width, _SHARES)
        draw_shares(axes, mode, shown.batches, width)
        if number:
            axes.set_yticklabels([])
