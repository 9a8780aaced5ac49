"""Lines broken at blanks for a terminal's width, but never what a person copies, and nothing where no width is given. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

_LEAST = 40  # columns; where there are fewer, the terminal breaks lines itself
_TABLE = re.compile(r"  \S(?:\S| (?! ))*  +(?=\S)")  # `  name   value`: goes on below the value
_COPIED = re.compile(r"(?:^|\s)(?:-{1,2}[A-Za-z]|[A-Z][A-Z0-9_]*=|[{\[])")


def wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    """Every line no longer than `width`, except for single words that are; what goes on is indented below its beginning."""
    return [piece for line in lines for piece in _pieces(line, width)]


def wrapped_findings(lines: Iterable[str], width: int | None) -> list[str]:
    """The same for `advisor explain`: a fix that holds options, variables or JSON is for copying and stays whole."""
    return [piece for line in lines for piece in ([line] if _to_copy(line) else _pieces(line, width))]


def _to_copy(line: str) -> bool:
    fix = re.match(r"\s+fix: (.*)", line)
    return bool(fix and _COPIED.search(fix[1]))


def _pieces(line: str, width: int | None) -> list[str]:
    if width is None or len(line) <= width or width < _LEAST:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=_indent(line), break_long_words=False, break_on_hyphens=False
    )


def _indent(line: str) -> str:
    if line.startswith("#"):
        return "#   "
    if line.startswith("coverage: "):
        return " " * len("coverage: ")
    if table := _TABLE.match(line):
        return " " * table.end()
    return " " * (len(line) - len(line.lstrip()) + 4)
