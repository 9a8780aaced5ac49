"""Where the YAML files that come with the advisor lie: in a source tree, in an editable install, in a wheel."""

from __future__ import annotations

from pathlib import Path

from advisor.errors import InputError

_PACKAGE = Path(__file__).resolve().parent


def search_spaces_folder() -> Path:
    """Folder of the search spaces that come with the advisor.

    They lie beside the package in a source tree, where people review them, and inside it in an installed wheel.
    """
    inside = _PACKAGE / "search_spaces"
    return inside if inside.is_dir() else _PACKAGE.parent / "search_spaces"


def search_space_path(name: str = "default") -> Path:
    """Path of the search space called `name` (without .yaml). Raises InputError that lists the names there are."""
    return _named(search_spaces_folder(), name, "search space")


def profiles_folder() -> Path:
    """Folder of the profiles that come with the advisor: beside the package in a source tree, inside it in an installed wheel."""
    inside = _PACKAGE / "profiles"
    return inside if inside.is_dir() else _PACKAGE.parent / "profiles"


def presets_folder() -> Path:
    """Folder of the workload presets."""
    return _PACKAGE / "measure" / "presets"


def preset_path(name: str) -> Path:
    """Path of the workload preset called `name` (without .yaml). Raises InputError that lists the names there are."""
    return _named(presets_folder(), name, "workload preset")


def _named(folder: Path, name: str, kind: str) -> Path:
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        raise InputError(f"{kind} {name!r} does not exist", f"there is: {', '.join(names) or 'none'}; or give a file")
    return folder / f"{name}.yaml"
