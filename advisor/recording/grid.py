"""A recorded grid: one JSON-lines file that holds a space, where and how it was measured, and every launch of it.

Its first line is the head (`Grid`), then follow `session` lines, one for each run of `advisor record`, each before its `trial`
lines, which are those of a study's journal without what only the recording machine has: so whatever reads the one reads the
other. docs/recording.md describes the fields.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.journal import Study, read_events, write_atomically
from advisor.records import Candidate, Command, Facts, Sample, Trial, Workload, from_json, to_json
from advisor.space.candidates import SettingChoices

SCHEMA = "advisor.grid/1"
_PID = re.compile(r" \(pid \d+\)")


@dataclass(frozen=True)
class Equal:
    """A combination that is not launched because it resolves to the same configuration as another one."""

    candidate: Candidate
    same_as: Candidate


@dataclass(frozen=True)
class Head:
    """What all launches of a grid have in common. `identity` must be equal for two files to be parts of one grid."""

    name: str
    created_at: str  # ISO 8601, UTC
    identity: Mapping[str, Any]  # model, GPU, versions, workload, space, served arguments, seeds
    facts: Facts  # without ids and paths of the machine
    workload: Workload
    serve_args: tuple[str, ...]
    serve_env: Mapping[str, str]
    random_weights: bool
    samples: int  # seeds of a launch
    settings: tuple[SettingChoices, ...]  # the tree of choices that the candidates are from
    candidates: tuple[Candidate, ...]  # all distinct ones that are known, in the order of recording, the default first
    resolved: tuple[Mapping[str, Any], ...]  # what vLLM made of each of them
    equal: tuple[Equal, ...] = ()  # combinations that run like one of them


@dataclass(frozen=True)
class Session:
    """One run of `advisor record`."""

    started_at: str
    command: str
    cores: int  # of the machine's processor that it could use
    gpus: int  # of this kind that it could use
    launcher: str = "cold"
    shard: str = ""  # "0/2"


@dataclass(frozen=True)
class Recorded:
    """A grid as it was read back."""

    head: Head
    trials: tuple[Trial, ...]
    sessions: tuple[Session, ...] = field(default_factory=tuple)


class Grid(Study):
    """The journal of a study that lies in a file of its own, with its description in the first line.

    `folder` takes logs and raw results. `clean` takes this machine's paths and secrets out of a sentence.
    """

    def __init__(
        self, path: Path, folder: Path, head: Head, identity: Mapping[str, Any], clean: Callable[[str], str] = str
    ):
        """Make the file with `head`, or go on with what is there. Raises InputError where that is of another `identity`."""
        self.path, self.head, self._clean = path, head, clean
        super().__init__(folder, head.name, identity)
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.__exit__()
            raise InputError(
                f"{str(path)!r} is being recorded by another advisor", "wait for it, or use --shard"
            ) from None

    @property
    def _journal_path(self) -> Path:
        return self.path

    @property
    def kept_in(self) -> Path:
        return self.path

    def _open(self, identity: Mapping[str, Any]) -> str:
        if not self.path.exists():
            write_atomically(self.path, head_line(self.head))
            return self.head.created_at
        found = read_head(self.path)
        check_same(self.path, found, identity)
        self.head = found
        return found.created_at

    def begin_session(self, session: Session) -> None:
        self._write({"event": "session", "session": to_json(session)})

    def append(self, trial: Trial) -> None:
        super().append(portable(trial, self._clean))


def portable(trial: Trial, clean: Callable[[str], str] = str) -> Trial:
    """The trial without its command (head and candidate give it), and without the machine's processes and their numbers."""

    def plain(text: str) -> str:
        return _PID.sub("", clean(text))

    rewrites = tuple(map(plain, trial.active.rewrites))
    return dataclasses.replace(
        trial,
        command=Command(()),
        reason=plain(trial.reason),
        notes=tuple(map(plain, trial.notes)),
        active=dataclasses.replace(trial.active, rewrites=rewrites),
        samples=tuple(_without_processes(sample, plain) for sample in trial.samples),
    )


def _without_processes(sample: Sample, plain: Callable[[str], str]) -> Sample:
    seen = sample.telemetry
    if seen is not None:
        seen = dataclasses.replace(seen, gpu_processes=(), cpu_processes=())
    return dataclasses.replace(sample, telemetry=seen, taints=tuple(map(plain, sample.taints)))


def read_grid(path: Path) -> Recorded:
    """Raises InputError for a file that is no grid, naming the line."""
    head = read_head(path)
    events = read_events(path)
    return Recorded(
        head,
        tuple(event["trial"] for event in events if event["event"] == "trial"),
        tuple(from_json(Session, event["session"]) for event in events if event["event"] == "session"),
    )


def read_head(path: Path) -> Head:
    """The first line of a grid. Raises InputError where it is none."""
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
        if first["event"] != "grid" or first["grid"]["schema"] != SCHEMA:
            raise ValueError("its first line is another event")
        return from_json(Head, first["grid"])
    except OSError as error:
        raise InputError(f"grid {str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        hint = "give a file that `advisor record` wrote; for a new grid, another --output"
        raise InputError(f"{str(path)!r} is not a recorded grid: {error}", hint) from None


def check_same(path: Path, head: Head, identity: Mapping[str, Any]) -> None:
    """Raises InputError, naming the first difference, where launches of `identity` could not be compared with those of `head`."""
    plain, known = json.loads(json.dumps(to_json(identity))), to_json(head.identity)
    for key in sorted({*plain, *known}):
        if plain.get(key) != known.get(key):
            raise InputError(
                f"{str(path)!r} was recorded with {key} {_short(known.get(key))}, now it is {_short(plain.get(key))}",
                "launches of the two cannot be compared: choose another --output",
            )


def line(event: str, content: Any) -> str:
    return json.dumps({"event": event, event: content}, separators=(",", ":")) + "\n"


def head_line(head: Head) -> str:
    return line("grid", {"schema": SCHEMA, **to_json(head)})


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
