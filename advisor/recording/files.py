"""The files of one grid: the whole one, and the parts that are recorded at the same time on several GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.recording.grid import Recorded, check_same, read_grid

_SHARD = re.compile(r"(\d+)/(\d+)")


def parse_shard(text: str) -> tuple[int, int]:
    """`0/2` -> (0, 2): the first of two parts. Raises InputError."""
    found = _SHARD.fullmatch(text.strip())
    if not found or int(found[1]) >= int(found[2]):
        raise InputError(f"--shard {text!r} is not a part I/N", "0/2 and 1/2 are the two halves")
    return int(found[1]), int(found[2])


def shard_path(path: Path, shard: tuple[int, int] | None) -> Path:
    """`NAME.jsonl` -> `NAME.0of2.jsonl`."""
    return path.with_name(f"{path.stem}.{shard[0]}of{shard[1]}{path.suffix}") if shard else path


def files_of(path: Path) -> list[Path]:
    """The files of a grid: the whole one and its parts, as far as they are there."""
    a_part = re.compile(rf"{re.escape(path.stem)}\.\d+of\d+{re.escape(path.suffix)}")
    beside = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    return [item for item in beside if item.name == path.name or a_part.fullmatch(item.name)]


def other_parts(main_path: Path, own: Path, identity: Mapping[str, Any]) -> list[Recorded]:
    """What the grid's other files hold, which is not launched again. Raises InputError where one was recorded otherwise."""
    found = [(path, read_grid(path)) for path in files_of(main_path) if path != own]
    for path, grid in found:
        check_same(path, grid.head, identity)
    return [grid for _, grid in found]
