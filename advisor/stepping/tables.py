"""Tables of figures as lines of text. Pure."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 132


def table(title: str, left: Sequence[str], right: Sequence[str], wrapped: Sequence[str] = ()) -> Table:
    """Columns in this order: left ones, ones that take two lines where the width is short, right ones."""
    made = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (*left, *wrapped):
        made.add_column(name, no_wrap=name in left)
    for name in right:
        made.add_column(name, justify="right")
    return made


def drawn(shown: Table, width: int = WIDTH) -> str:
    """The title in a line of its own, which may be longer than the table is wide."""
    title, shown.title = str(shown.title), None
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(shown)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join([title, *(line.rstrip() for line in lines if line.strip())])
