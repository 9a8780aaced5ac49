"""What came of candidates in all studies of a runs folder: `failures.jsonl`, one line a trial, safe to delete.

Lines count for studies of the same vLLM, GPU, model and served arguments; a server that failed under load also of the same
workload. The journal of each study stays the truth about it: this file only saves launches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from advisor.journal import Study
from advisor.records import Facts, Trial, fingerprint
from advisor.request import TuneRequest
from advisor.search.feasibility import Feasibility, seen
from advisor.search.regions import Seen

FILE = "failures.jsonl"


def feasibility(request: TuneRequest, facts: Facts, study: Study) -> Feasibility:
    """What earlier studies in the same surroundings teach; what this one learns goes into the file."""
    known = KnownFailures(request.runs / FILE, surroundings(request, facts), fingerprint(request.workload), _told(study))
    return Feasibility(() if request.retry_failed else tuple(known.read()), known.add)


def _told(study: Study) -> str:
    """A folder that was deleted and made anew is another study."""
    return f"{study.name} of {study.created_at}"


def surroundings(request: TuneRequest, facts: Facts) -> dict[str, str]:
    """What must be equal for a failure to be expected again."""
    gpu = facts.gpu
    return {
        "vllm": f"{facts.engine.vllm_version}, torch {facts.engine.torch_version}",
        "gpu": f"{gpu.count} x {gpu.name}, {gpu.memory_gib:.0f} GiB",
        "model": f"{facts.model.architecture} {facts.model.config_hash}",
        "served": fingerprint([request.serve_args, request.serve_env]),
    }


class KnownFailures:
    """The file as seen from one study. A line that cannot be read is as if it were not there."""

    def __init__(self, path: Path, scope: Mapping[str, str], load: str, study: str):
        self._path, self._scope, self._load, self._study = path, dict(scope), load, study
        self._written = {line.get("trial") for line in self._lines() if line.get("study") == study}

    def read(self) -> Iterator[Seen]:
        """What other studies saw that counts here."""
        for line in self._lines():
            under_another_load = line.get("cause") and line.get("load") not in (None, self._load)
            if line.get("study") != self._study and not under_another_load:
                cause = tuple(line["cause"]) if line.get("cause") else None
                where = f"{line.get('study')}, trial {line.get('trial')}"
                yield Seen(line["candidate"], line["features"], cause, line.get("reason", ""), where)

    def add(self, trial: Trial, resolved: Mapping[str, Any] | None) -> None:
        """Append what a trial of this study says; once, however often the study goes on. A full disk is no reason to stop."""
        item = seen(trial, resolved)
        if item is None or trial.number in self._written:
            return
        self._written.add(trial.number)
        line = {
            **self._scope,
            "study": self._study,
            "trial": trial.number,
            "load": self._load if trial.start_s is not None else None,
            "candidate": item.key,
            "features": item.features,
            "cause": item.cause,
            "reason": item.reason,
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError:
            return

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return [line for raw in text.splitlines() if (line := _parsed(raw)) and self._counts(line)]

    def _counts(self, line: Mapping[str, Any]) -> bool:
        return all(line.get(name) == value for name, value in self._scope.items())


def _parsed(raw: str) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    good = isinstance(line, dict) and isinstance(line.get("candidate"), str) and isinstance(line.get("features"), dict)
    cause = line.get("cause") if good else None
    return line if good and (cause is None or (isinstance(cause, list) and len(cause) == 2)) else None
