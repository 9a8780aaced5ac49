"""What runs of the shelf left, as archives to be carried off a machine that goes away."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

_STUDY = ("study.json", "trials.jsonl", "time.jsonl")
# A study that goes on holds answers against the default's, and plans capture sizes from the baseline's requests.
_NEEDED = ("answers.json", "command.json", "server.log")
_RAW = "bench-seed*.json"


def pack(path: Path, made: Iterable[Path], runs: Path) -> str:
    """Two archives below the working folder's own names, so that unpacking them there puts each file where the next run looks.

    `path`: profiles, logs, journals, and what a study needs to go on. Beside it, as `-raw.tar.gz`, the requests of all other
    launches, which may be large. Compiled code is in neither. Returns a line for the person.
    """
    needed, raw = files_of(runs)
    small = [*sorted(file for file in made if file.exists()), *needed]
    _write(path, small)
    other = path.with_name(f"{path.name.removesuffix('.gz').removesuffix('.tar')}-raw.tar.gz")
    _write(other, raw)
    return f"packed {len(small)} files into {path}, {len(raw)} with requests into {other}"


def files_of(runs: Path) -> tuple[list[Path], list[Path]]:
    """(what every study needs to go on, the other launches' requests) in the folder of studies."""
    needed = [file for name in _STUDY for file in sorted(runs.glob(f"*/{name}"))]
    needed += [file for name in _NEEDED for file in sorted(runs.glob(f"*/launches/*/{name}"))]
    raw = sorted(runs.glob(f"*/launches/*/{_RAW}"))
    return [*needed, *(file for file in raw if _of_baseline(file))], [file for file in raw if not _of_baseline(file)]


def _of_baseline(file: Path) -> bool:
    return "-baseline" in file.parent.name


def _write(path: Path, files: Sequence[Path]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    here = Path.cwd().resolve()
    with tarfile.open(path, "w:gz") as archive:
        for file in files:
            resolved = file.resolve()
            inside = resolved.is_relative_to(here)
            archive.add(resolved, str(resolved.relative_to(here)) if inside else str(resolved).lstrip("/"))
