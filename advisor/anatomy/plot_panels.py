"""The panels of an anatomy's plot, each into axes that are given. Colours and marks of all of it stand here.

Colours are told apart by people who are colour-blind; on black-and-white paper marks, hatches and brightness tell the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.anatomy.plot_parts import PARTS, Bar, Picture, Point, Shown
from advisor.anatomy.plot_scales import bar_widths, gap, limits, log_limits, position, readable, ticks
from advisor.stepping.figures import bare_ms

# Colours after Okabe and Ito, marks, lines.
MODES = {
    "none": ("#000000", "o", "-"),
    "compile": ("#D55E00", "s", "--"),
    "full": ("#009E73", "^", "-."),
    "piecewise": ("#CC79A7", "D", ":"),
    "both": ("#0072B2", "v", "-"),
}
# From dark to light, so that they differ on paper too.
FILLS = {
    "floor": ("#08415C", ""),
    "other": ("#5FA8D3", "////"),
    "idle": ("#FCE2A8", "\\\\"),  # lines: dots take more bytes than all the rest of an SVG
    "rest": ("#E8E8E8", "xxx"),
}
FLOOR = {"color": "#606060", "linewidth": 2.2, "linestyle": (0, (1, 0.6)), "marker": "_", "markeredgewidth": 2.2}
ABOVE = "#EBEBEB"  # between the floor and the best step
HOST_EDGE, HOST_LINE = {"color": "#FFFFFF", "linewidth": 3.4}, {"color": "#000000", "linewidth": 1.7}
_DIGIT, _SPACE, _UPRIGHT = (
    0.056,
    0.06,
    0.12,
)  # inches of a label's digit, between two labels, of a number that stands upright
_NARROW = 0.36  # inches between bars: less, and the numbers above them stand upright


def mode_line(name: str) -> dict[str, Any]:
    color, marker, style = MODES[name]
    size = 7.0 - 0.6 * list(MODES).index(name)  # of marks on one place the one behind is still seen
    return {"color": color, "marker": marker, "linestyle": style, "linewidth": 1.3, "markersize": size}


def part_fill(name: str) -> dict[str, Any]:
    color, hatch = FILLS[name]
    return {"facecolor": color, "hatch": hatch, "edgecolor": "#333333", "linewidth": 0.5}


# ---------------------------------------------------------------- times


def draw_steps(axes: Any, shown: Picture, width: float) -> None:
    """Both axes logarithmic: one distance is one factor, wherever it is. `width` in inches, as everywhere here."""
    curves = {mode.name: mode.steps for mode in shown.modes}
    best = {batch: min(p.ms for steps in curves.values() for p in steps if p.at == batch) for batch in shown.batches}
    numbers, low, high = gap(shown.floor, best)
    places = [position(number) for number in numbers]
    axes.fill_between(places, low, high, color=ABOVE, linewidth=0)
    axes.plot(places, low, **FLOOR)
    _curves(axes, curves, width, low)
    axes.set_xlabel("requests that decode together (batch size)")
    axes.set_title("Decode step, ms (median)")


def draw_prefill(axes: Any, shown: Picture, width: float) -> None:
    curves = {mode.name: mode.prefill for mode in shown.modes if mode.prefill}
    if not curves:
        axes.set_axis_off()
        axes.set_title("Prefill: not measured")
        return
    _curves(axes, curves, width)
    axes.set_xlabel("tokens of the prompt")
    axes.set_title("Prefill of one prompt, ms")


def draw_starts(axes: Any, shown: Picture, height: float) -> None:
    """A bar for each mode, its name and figures above it; room for all five."""
    started = [mode for mode in shown.modes if mode.start_s is not None]
    axes.set_axis_off()
    axes.set_title("Start, s, and memory of graphs" if started else "Start: not measured")
    axes.set_ylim(height, 0)
    axes.set_xlim(0, max((mode.start_s or 0 for mode in started), default=1) or 1)
    for number, mode in enumerate(started):
        top = number * height / len(MODES)
        axes.text(0, top, mode.title, va="top", fontsize=7)
        axes.text(0, top + 0.13, mode.start_note, va="top", fontsize=7)
        axes.barh(top + 0.34, mode.start_s, height=0.1, color=MODES[mode.name][0])


def _curves(axes: Any, curves: Mapping[str, Sequence[Point]], width: float, others: Sequence[float] = ()) -> None:
    for name, points in curves.items():
        axes.plot([position(point.at) for point in points], [point.ms for point in points], **mode_line(name))
        hollow = [point for point in points if not point.steady]
        axes.plot(
            [position(point.at) for point in hollow], [point.ms for point in hollow],
            **{**mode_line(name), "linestyle": "", "markerfacecolor": "white", "zorder": 3},
        )  # fmt: skip
    _label_numbers(axes, sorted({point.at for points in curves.values() for point in points}), width)
    axes.set_yscale("log")
    low, high = log_limits([*others, *(point.ms for points in curves.values() for point in points)])
    axes.set_ylim(low, high)
    axes.set_yticks(ticks(low, high), [f"{value:g}" for value in ticks(low, high)])
    axes.minorticks_off()
    axes.grid(True)
    axes.tick_params(labelsize=7)


def _label_numbers(axes: Any, numbers: Sequence[int], width: float) -> None:
    low, high = limits(numbers)
    doublings = (high - low) / width  # an inch
    named = readable(numbers, lambda one, two: doublings * (_SPACE + _DIGIT * len(f"{one}{two}") / 2))
    axes.set_xlim(low, high)
    axes.set_xticks([position(number) for number in named], [str(number) for number in named])


# ---------------------------------------------------------------- shares


def numbers_height(shown: Picture, width: float) -> float:
    """Of what stands above bars in panels of this width."""
    longest = max(len(_number(bar)) for mode in shown.modes for bar in mode.bars)
    return 0.12 + _DIGIT * longest if _is_tight(shown.batches, width) else 0.22


def _number(bar: Bar) -> str:
    return f"{bare_ms(bar.step_ms)}{'' if bar.steady else '*'}"


def _is_tight(batches: Sequence[int], width: float) -> bool:
    """Whether numbers above bars have to stand upright."""
    low, high = limits(batches)
    near = min((position(right) - position(left) for left, right in itertools.pairwise(batches)), default=high - low)
    return near * width / (high - low) < _NARROW


def draw_shares(axes: Any, mode: Shown, batches: Sequence[int], width: float) -> None:
    """Bars of one height, whose parts are those of the step; the step itself stands above. `batches`: of all modes."""
    places = [position(bar.batch) for bar in mode.bars]
    widths = bar_widths([bar.batch for bar in mode.bars])
    bottoms = [0.0] * len(places)
    for name in PARTS:
        shares = [100 * bar.shares.get(name, 0.0) for bar in mode.bars]
        if any(shares):
            axes.bar(places, shares, widths, bottom=bottoms, **part_fill(name))
            bottoms = [bottom + share for bottom, share in zip(bottoms, shares, strict=True)]
    _mark_host(axes, mode.bars, widths)
    _number_bars(axes, mode.bars, batches, width)
    _label_numbers(axes, batches, width)
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100%"])
    axes.set_xlabel("batch size", labelpad=1)
    axes.tick_params(labelsize=7)


def _mark_host(axes: Any, bars: Sequence[Bar], widths: Sequence[float]) -> None:
    """A dash where the host's own work ends: at the top it is what the step waits for, further down it is hidden."""
    for bar, wide in zip(bars, widths, strict=True):
        if bar.host_ms is not None:
            place, height = position(bar.batch), min(100 * bar.host_ms / bar.step_ms, 100)
            for line in (HOST_EDGE, HOST_LINE):
                axes.hlines(height, place - wide / 2, place + wide / 2, **line)


def _number_bars(axes: Any, bars: Sequence[Bar], batches: Sequence[int], width: float) -> None:
    low, high = limits(batches)
    numbered = readable([bar.batch for bar in bars], lambda *_: _UPRIGHT * (high - low) / width)
    for bar in bars:
        if bar.batch in numbered:
            axes.text(
                position(bar.batch), 103, _number(bar),
                ha="center", va="bottom", fontsize=7, rotation=90 if _is_tight(batches, width) else 0,
            )  # fmt: skip
