"""A study's folder: `study.json` says what is being tuned, `trials.jsonl` holds every trial, one flushed line each.

The journal is the only state. Everything else (the Optuna study, the profile, what is left to do) is derived from it, so a
study continues after Ctrl-C, a crash of the advisor or of the machine: a half-written last line is dropped. `time.jsonl` is for
people: where the time of each command went.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from advisor.errors import InputError
from advisor.records import Trial, from_json, to_json

SCHEMA = "advisor.study/1"


def now() -> str:
    """The present as ISO 8601 in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file in one step, so that a reader or a crash never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise


class Study:
    """An open study. Use as a context manager: it holds a lock, so that two runs never write one journal."""

    def __init__(self, folder: Path, name: str, identity: Mapping[str, Any]):
        """Create the folder or continue what is there. `identity` is what must be equal for trials to be comparable.

        Raises InputError when the folder cannot be written, is in use, or holds a study of something else.
        """
        self.folder = folder
        self.name = name
        self._lock = _locked(folder)
        try:
            self.created_at = self._open(identity)
            self.trials = _read_trials(self._journal_path)
            self._journal = self._journal_path.open("ab", buffering=0)
        except BaseException:
            self._lock.close()
            raise

    @property
    def _journal_path(self) -> Path:
        return self.folder / "trials.jsonl"

    @property
    def kept_in(self) -> Path:
        """What a person keeps to go on later."""
        return self.folder

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        self._lock.close()

    def _open(self, identity: Mapping[str, Any]) -> str:
        path = self.folder / "study.json"
        plain = json.loads(json.dumps(to_json(identity)))
        if not path.exists():
            created_at = now()
            description = {"schema": SCHEMA, "name": self.name, "created_at": created_at, "identity": plain}
            write_atomically(path, json.dumps(description, indent=1) + "\n")
            return created_at
        found = _read_description(path)
        if plain != found["identity"] and not any(trial.ok for trial in _read_trials(self._journal_path)):
            self._set_aside()
            return self._open(identity)
        for key in sorted({*plain, *found["identity"]}):
            if plain.get(key) != found["identity"].get(key):
                raise InputError(
                    f"study {self.name!r} in {self.folder} was measured with {key} {_short(found['identity'].get(key))}, "
                    f"now it is {_short(plain.get(key))}",
                    "its trials cannot be mixed with new ones: choose another name with --study",
                )
        return found["created_at"]

    def _set_aside(self) -> None:
        """A study in which nothing was measured is in nobody's way: its two files get a number, its logs stay."""
        number = next(n for n in itertools.count(1) if not (self.folder / f"study-{n}.json").exists())
        for path in (self._journal_path, self.folder / "study.json"):  # the description last: without it, it is done
            if path.exists():
                path.rename(path.with_stem(f"{path.stem}-{number}"))

    @property
    def resumed(self) -> bool:
        return bool(self.trials)

    @property
    def next_number(self) -> int:
        return max((trial.number for trial in self.trials), default=-1) + 1

    @property
    def spent_s(self) -> float:
        """Wall seconds that all trials cost so far, in this session and earlier ones."""
        return sum(trial.total_s for trial in self.trials)

    def append(self, trial: Trial) -> None:
        """Write the trial to the journal before anything else looks at it. Raises OSError, and then leaves no half line."""
        self._write({"event": "trial", "trial": to_json(trial)})
        self.trials.append(trial)

    def add_account(self, seconds: Mapping[str, float]) -> None:
        """Where the wall time of one command went, by name, all of it: a line of time.jsonl. Raises OSError."""
        line = {"ended_at": now(), "seconds": {name: round(spent, 3) for name, spent in seconds.items()}}
        with (self.folder / "time.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _write(self, event: Mapping[str, Any]) -> None:
        """One line on the disk, or none. Raises OSError."""
        line = json.dumps(event, separators=(",", ":")) + "\n"
        before = os.fstat(self._journal.fileno()).st_size
        try:
            rest = memoryview(line.encode())
            while rest:  # without a buffer a nearly full disk takes a part
                rest = rest[self._journal.write(rest) :]
            os.fsync(self._journal.fileno())
        except OSError:
            os.ftruncate(self._journal.fileno(), before)
            raise


def _locked(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"study folder {str(folder)!r} cannot be written: {error.strerror}", "choose another with --runs"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise InputError(
            f"study folder {str(folder)!r} is in use by another advisor", "wait for it, or use another --study"
        ) from None
    return lock


def _read_description(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA or not isinstance(found["identity"], dict):
            raise ValueError(found["schema"])
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(path)!r} is not the description of a study: {error}", "choose another name with --study"
        ) from None


def _read_trials(path: Path) -> list[Trial]:
    """The journal's trials. A last line without its newline was cut off by a crash: it is removed, the trial is run again."""
    if not path.exists():
        return []
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
    return [event["trial"] for event in read_events(path) if event["event"] == "trial"]


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a journal or recorded grid, in order, each `trial` as a Trial. The file is left as it is.

    A last line without its newline is left out. Raises InputError for a line that is no event, and where the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    events = []
    whole = content[: content.rfind(b"\n") + 1].decode("utf-8", errors="replace")
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            event = json.loads(line)
            if event["event"] == "trial":
                event["trial"] = from_json(Trial, event["trial"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{str(path)!r}, line {number}: not an event of a study: {error}") from None
        events.append(event)
    return events


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
