"""Plots as files, drawn without a display. matplotlib is imported when one is drawn, never before: its import takes a second.

A plot of the same figures is the same file with the same matplotlib: no dates, no random names in it.
"""

from __future__ import annotations

import importlib.util
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.errors import EnvironmentMismatch, InputError
from advisor.journal import write_atomically

FORMATS = (".svg", ".png", ".pdf")
_NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that text is as wide everywhere
    "font.size": 8,
    "text.parse_math": False,  # a $ in a model's name is a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "grid.color": "#D0D0D0",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.borderpad": 0.0,
    "svg.fonttype": "none",  # letters as letters: as outlines they are half of the file, and cannot be searched
    "svg.hashsalt": "advisor",
    "savefig.dpi": 150,
}


def check_plot(path: Path) -> None:
    """Raises InputError where the name says none of FORMATS, EnvironmentMismatch where there is no matplotlib."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"--plot {path} is not the name of a plot", f"end it with {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise EnvironmentMismatch(
            "plots need matplotlib, which is not installed here",
            "pip install matplotlib, or the advisor with its extra: pip install '.[plots]'",
        )


def write_plot(path: Path, draw: Callable[[], Any]) -> None:
    """Replace the file in one step. `draw` returns a matplotlib Figure; a person's own matplotlibrc changes nothing.

    Raises what check_plot raises, and OSError where the file cannot be written.
    """
    check_plot(path)
    import matplotlib

    suffix, picture = path.suffix.lower(), io.BytesIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name in a script that the font lacks: boxes, and no lines on the terminal
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        draw().savefig(picture, format=suffix[1:], metadata=_NO_DATE[suffix])
    found = picture.getvalue()
    write_atomically(path, small_svg(found.decode()).encode() if suffix == ".svg" else found)


def small_svg(text: str) -> str:
    """The same picture in fewer bytes: coordinates to a hundredth of a point, no indentation, a path in one line.

    Only what stands in tags is changed, no number that is read. Verdana, which is as wide, stands in for DejaVu Sans where
    that is missing.
    """
    return re.sub(r"\n\s+", "\n", re.sub(r"<[^>]*>", lambda tag: _small_tag(tag[0]), text))


def _small_tag(tag: str) -> str:
    tag = tag.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return " ".join(re.sub(r"-?\d+\.\d{3,}", _rounded, tag).split())


def _rounded(number: re.Match[str]) -> str:
    value = round(float(number[0]), 2) + 0.0  # no -0
    return f"{value:.2f}".rstrip("0").rstrip(".")
