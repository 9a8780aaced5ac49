"""Profiles on disk: where they lie, reading with every mistake named, writing in one step."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from advisor.errors import InputError
from advisor.records import Facts, Objective, Workload
from advisor.serving_profile.schema import SCHEMA_NAME, Profile, schema_version
from advisor.serving_profile.scrub import model_name
from advisor.serving_profile.text import profile_text
from advisor.yaml_files import read_model, read_yaml

_ROOM = "#" * (64 * 1024)  # more than a profile needs: an empty file can be made on a full disk


def profile_path(root: Path, facts: Facts, workload: Workload, objective: Objective) -> Path:
    """`<root>/<gpu slug>/<model>-<workload>.yaml`; `root` is the folder of all profiles.

    What is not tuned for output tokens a second has its goal in the name too: one answer must not replace another.
    """
    words = (model_name(facts.model), workload.name, objective.slug)
    stem = "-".join(file_name(word) for word in words if word)
    return root / file_name(facts.gpu.slug) / f"{stem}.yaml"


def file_name(text: str) -> str:
    """Text as part of a file's name: `org/Model 1.5` -> `org-Model-1.5`. Never empty or hidden."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "unnamed"


def read_profile(path: Path) -> Profile:
    """The profile in a file. Raises InputError with file and line; of several mistakes, all are listed."""
    data, lines = read_yaml(path, "profile")
    if not isinstance(data, dict) or "schema" not in data:
        raise InputError(f"{str(path)!r} is not an advisor profile: no `schema: {SCHEMA_NAME}/...`")
    if "schema" in data:
        try:
            schema_version(data["schema"])
        except ValueError as error:
            # Alone: what else a newer file holds is not a mistake.
            raise InputError(f"profile {str(path)!r}, line {lines.get(('schema',), 1)}: {error}") from None
    return read_model(path, "profile", Profile)


def write_profile(path: Path, profile: Profile) -> None:
    """Replace the file in one step: a reader sees the old text or the new one. Raises InputError when it cannot be."""
    target = path.resolve()  # a link stays a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _written_beside(target, profile_text(profile))
        try:
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(path, error) from None


def check_writable(path: Path) -> None:
    """Prove before measuring that `write_profile` can work, leaving an existing file untouched. Raises InputError."""
    target = path.resolve()
    try:
        if target.is_dir():  # also raises for a name that is too long
            raise InputError(f"profile {str(path)!r} is a folder", "name a file in it")
        target.parent.mkdir(parents=True, exist_ok=True)
        _written_beside(target, _ROOM).unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def _written_beside(target: Path, text: str) -> Path:
    """A new file in the target's folder, on disk when this returns."""
    # Half of the name at most: the target's own name may be as long as the file system allows.
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o644)  # mkstemp's files are for their owner alone; a profile is for the team
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"profile {str(path)!r} cannot be written: {error.strerror or error}", "choose another place for it"
    )
