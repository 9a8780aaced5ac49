"""What a running study tells the person; the terminal's side of it is advisor/report/."""

from __future__ import annotations

from typing import Protocol

from advisor.records import Candidate, Trial


class Progress(Protocol):
    """Told in order; must not raise and must not take long."""

    def stage(self, text: str) -> None:
        """A part of the study begins: one line."""

    def note(self, text: str) -> None:
        """A fact that the person should see once."""

    def resumed(self, spent_s: float) -> None:
        """Seconds of the budget that earlier sessions of the study have used; told before the first trial."""

    def trial_started(self, number: int, phase: str, candidate: Candidate) -> None:
        """A launch begins."""

    def waiting(self, what: str, seconds: float) -> None:
        """What the launch waits for, and for how long already."""

    def trial_ended(self, trial: Trial, score: float | None, baseline: float | None) -> None:
        """A launch is over and its server gone."""


class Silent:
    """For callers that watch nothing."""

    def stage(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def resumed(self, spent_s: float) -> None: ...

    def trial_started(self, number: int, phase: str, candidate: Candidate) -> None: ...

    def waiting(self, what: str, seconds: float) -> None: ...

    def trial_ended(self, trial: Trial, score: float | None, baseline: float | None) -> None: ...
