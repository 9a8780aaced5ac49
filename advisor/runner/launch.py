"""What is known of one launch while it goes on, and the trial that it becomes."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from advisor.engine.agreement import Agreement
from advisor.engine.api_servers import unequal_shares
from advisor.engine.drafts import told_drafts
from advisor.engine.logs import parse_active
from advisor.engine.metrics_page import with_page
from advisor.engine.startup import parse_startup
from advisor.journal import now
from advisor.measure.metrics_page import kept_page
from advisor.measure.validity import first_problem
from advisor.records import (
    Active,
    Candidate,
    Command,
    Dropped,
    LoadPoint,
    Outcome,
    QualityScore,
    Sample,
    SamplingPlan,
    StartUp,
    Trial,
    WarmUp,
)
from advisor.runner.base import Job

NOTHING_SAID = (
    "the server's log does not say what it runs, so that settings are taken on trust: it is cut short "
    "(VLLM_LOGGING_LEVEL above INFO, VLLM_CONFIGURE_LOGGING=0) or in a form that is not known"
)

NOT_COUNTED = (
    "the server's /metrics page has no counters (--disable-log-stats takes them away): cached prompts, preemptions and other "
    "clients were not looked for"
)


class Launched(Protocol):
    """What is asked of a server (launch/server.py) about its start, one that failed included."""

    launcher: str
    launcher_s: float
    launcher_import_s: float
    lost_s: float


class Launch:
    """What is known of a launch while it goes on."""

    def __init__(self, job: Job, command: Command, folder: Path):
        self.job, self.command, self.folder = job, command, folder
        self.outcome, self.reason = Outcome.OK, ""
        self.samples: list[Sample] = []
        self.slices: list[Sample] = []
        self.dropped: Dropped | None = None
        self.notes: list[str] = []
        self.warm_up: WarmUp | None = None
        self.plan: SamplingPlan | None = None
        self.loads: tuple[LoadPoint, ...] = ()
        self.answers: Path | None = None
        self.quality: QualityScore | None = None
        self.memory_free: float | None = None
        self.leftovers: tuple[str, ...] = ()
        self.credited_to: Candidate | None = None
        self.times: dict[str, float] = {}
        self.server: Launched | None = None
        self.active = Active()
        self.started_at = now()

    def is_lost(self) -> bool:
        """Whether the launch cannot win any more; what says so is kept."""
        if self.job.race is not None and self.dropped is None:
            self.dropped = self.job.race.judge(self.times.get("start_s"), self.slices, self.samples)
        return self.dropped is not None

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self.times[name] = time.monotonic() - begun

    def read_active(self) -> Active:
        """What log and /metrics page say, before it is held against what was asked for."""
        log = self.log_text()
        return with_page(parse_active(log), kept_page(self.folder)) if log else Active()

    def check(self, agreement: Agreement) -> None:
        """Take over what the server says that it runs; problems of samples, and settings that are not active, are outcomes."""
        self.active = agreement.active
        self.notes[:0] = agreement.notes
        if shares := unequal_shares(self.log_text()):
            self.notes.append(shares)
        if drafts := told_drafts(kept_page(self.folder), self.command.argv):
            self.notes.append(drafts)
        if self.outcome is not Outcome.OK:
            return
        if self.active.vllm_version is None:
            self.notes.insert(0, NOTHING_SAID)
        valid = [sample for sample in self.samples if not sample.problems]  # one that was lost with its client has none either
        if valid and all(sample.prefix_hit_ratio is None and sample.preemptions is None for sample in valid):
            self.notes.append(NOT_COUNTED)
        bad = [first_problem(sample) for sample in self.samples if sample.problems]
        if agreement.wrong:
            self.outcome, self.reason = Outcome.NOT_AS_REQUESTED, agreement.wrong
            self.credited_to = None if bad else agreement.credited_to
        elif bad:
            self.outcome, self.reason = Outcome.INVALID_MEASUREMENT, bad[0]

    @property
    def launcher(self) -> str:
        """How the server was started at last: "warm" or "cold"."""
        return self.server.launcher if self.server else "cold"

    def start_up(self) -> StartUp | None:
        """The parts of the start, once there was one."""
        start_s = self.times.get("start_s")
        forked = self.launcher == "warm"
        return None if start_s is None else parse_startup(self.log_text(), start_s, self.active, forked)

    def log_text(self) -> str:
        try:
            return self.log_path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def trial(self, root: Path, total_s: float) -> Trial:
        return Trial(
            number=self.job.number,
            phase=self.job.phase,
            candidate=self.job.candidate,
            outcome=self.outcome,
            reason=self.reason,
            samples=tuple(_relative(sample, root) for sample in self.samples),
            slices=tuple(_relative(sample, root) for sample in self.slices),
            dropped=self.dropped,
            active=self.active,
            resolved=self.job.resolved,
            credited_to=self.credited_to,
            notes=tuple(self.notes),
            warm_up=self.warm_up,
            plan=self.plan,
            loads=self.loads,
            answers=str(self.answers.relative_to(root)) if self.answers else None,
            quality=self.quality,
            memory_free=None if self.memory_free is None else round(self.memory_free, 4),
            leftovers=self.leftovers,
            launcher=self.launcher,
            launcher_s=round(self.server.launcher_s, 3) or None if self.server else None,
            launcher_import_s=round(self.server.launcher_import_s, 3) or None if self.server else None,
            lost_s=round(self.server.lost_s, 3) or None if self.server else None,
            start_up=self.start_up(),
            command=self.command,
            folder=str(self.folder.relative_to(root)),
            total_s=round(total_s, 3),
            round=self.job.round,
            started_at=self.started_at,
            **{name: round(seconds, 3) for name, seconds in self.times.items()},
        )


def _relative(sample: Sample, root: Path) -> Sample:
    if sample.raw is None or not Path(sample.raw).is_absolute():
        return sample
    return dataclasses.replace(sample, raw=str(Path(sample.raw).relative_to(root.resolve())))
