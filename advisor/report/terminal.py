"""The running study on a terminal: a live display with rich, or plain lines where nobody watches a screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.text import Text

from advisor.measure.loads import by_load
from advisor.records import Candidate, Objective, Outcome, Trial
from advisor.search.scores import better_by, evidence, slo_breaches
from advisor.search.scores import score as score_of
from advisor.units import change, duration, number
from advisor.verdict.words import figure

Clock = Callable[[], float]
_NOTES = 3  # of a trial; the profile has them all


class Lines:
    """One line an event, for logs and pipes. Also keeps what the live display shows."""

    def __init__(
        self, write: Callable[[str], None], objective: Objective, budget_s: float, clock: Clock = time.monotonic
    ):
        self._write = write
        self._objective = objective
        self._budget_s = budget_s
        self._clock = clock
        self._begun = clock()
        self._spent_s = 0.0  # of the budget, by the trials that ended
        self._trial_begun: float | None = None
        self._stage = "start"
        self._trial = self._label = ""  # the trial that runs, and its candidate
        self._wait = ""  # what it waits for
        self.best: tuple[float, str] | None = None
        self.baseline: float | None = None

    def stage(self, text: str) -> None:
        self._stage = text
        self._write(f"== {text}")

    def note(self, text: str) -> None:
        self._write(f"   {text}")

    def resumed(self, spent_s: float) -> None:
        self._spent_s = spent_s

    def trial_started(self, number: int, phase: str, candidate: Candidate) -> None:
        self._trial_begun = self._clock()
        self._trial, self._label = f"trial {number} ({phase})", candidate.label
        self._wait = "start"

    def waiting(self, what: str, seconds: float) -> None:
        del seconds  # the display counts from the trial's begin, measuring included
        self._wait = what

    def trial_ended(self, trial: Trial, score: float | None, baseline: float | None) -> None:
        self._trial_begun = None
        self._spent_s += trial.total_s
        if trial.phase in ("baseline", "search"):
            self.baseline = baseline
        seen = evidence(trial)
        counted = score if seen is trial else score_of(seen, self._objective)
        if counted is not None and trial.phase in ("baseline", "search") and self._is_best(seen, counted):
            self.best = (counted, seen.candidate.label)
        self._write(trial_line(trial, score, baseline, self._objective))
        for note in trial.notes[:_NOTES]:
            self._write(f"       note: {note}")

    def _is_best(self, trial: Trial, score: float) -> bool:
        if slo_breaches(trial, self._objective):
            return False  # it cannot win
        return self.best is None or better_by(score, self.best[0], self._objective) > 1

    def status(self) -> list[str]:
        """Three lines: elapsed and remaining budget; what is going on and for how long; the best so far."""
        now = self._clock()
        running_s = now - self._trial_begun if self._trial_begun is not None else 0.0
        left_s = max(0.0, self._budget_s - self._spent_s - running_s)
        lines = [f"elapsed {duration(now - self._begun)}, {duration(left_s)} of {duration(self._budget_s)} budget left"]
        if self._trial_begun is not None:
            lines.append(f"{self._trial}, {self._wait} ({duration(running_s)}): {self._label}")
        else:
            lines.append(self._stage)
        lines.append(self._best_line())
        return lines

    def _best_line(self) -> str:
        if not self.best:
            known = f"default {self._figure(self.baseline)}" if self.baseline else "nothing measured yet"
            return f"best so far: {known}"
        value, label = self.best
        gain = f" ({change(better_by(value, self.baseline, self._objective), self._objective.maximise)})" if self.baseline else ""
        return f"best so far: {self._figure(value)}{gain} with {label}"

    def _figure(self, value: float) -> str:
        return figure(self._objective.metric, value)


def trial_line(trial: Trial, score: float | None, baseline: float | None, objective: Objective) -> str:
    """One finished trial: number, phase, figure against the baseline or failure, seconds it cost, candidate."""
    if trial.outcome is Outcome.OK and score is not None:
        told = _figure(trial, score, baseline, objective)
    elif trial.outcome is Outcome.OK and trial.dropped is not None:
        told = f"dropped {trial.dropped.reason}"
    elif trial.outcome is Outcome.OK and not trial.samples:
        told = "started, not measured"
    else:
        told = f"{trial.outcome.value}: {trial.reason}{_counted_for(trial, baseline, objective)}"
    start = f", start {duration(trial.start_s)}" if trial.start_s is not None else ""
    return (
        f"   {trial.number:>3} {trial.phase:<8} {told}  [{duration(trial.total_s)}{start}]  {trial.candidate.label}"
    )


def _figure(trial: Trial, score: float, baseline: float | None, objective: Objective) -> str:
    compared = baseline and not trial.candidate.is_baseline
    gain = f" {change(better_by(score, baseline, objective), objective.maximise)}" if compared else ""
    others = [(score_of(trial, one), one.metric) for one in objective.each[1:]]
    figures = [figure(metric, value) for value, metric in others if value is not None]
    loads = by_load(trial.samples)
    if len(loads) > 1 and objective.metric != "start_s":
        each = [(load, replace(trial, samples=tuple(found))) for load, found in sorted(loads.items())]
        figures.append("at " + ", ".join(f"{load:g}: {number(score_of(part, objective))}" for load, part in each))
    broken = slo_breaches(trial, objective)
    return ", ".join([f"{figure(objective.metric, score)}{gain}", *figures]) + (
        f" (breaks the SLO: {broken[0]})" if broken else ""
    )


def _counted_for(trial: Trial, baseline: float | None, objective: Objective) -> str:
    """Whose figure it is where other settings ran than were asked for."""
    seen = evidence(trial)
    value = score_of(seen, objective)
    if seen is trial or value is None:
        return ""
    return f"; {_figure(seen, value, baseline, objective)} count for {seen.candidate.label}, which ran"


class LiveDisplay:
    """`Lines` above three lines that are always there, redrawn twice a second. Use as a context manager."""

    def __init__(self, console: Console, objective: Objective, budget_s: float):
        self._lines = Lines(lambda text: console.print(text, markup=False, highlight=False), objective, budget_s)
        self._live = Live(console=console, refresh_per_second=2, transient=True, get_renderable=self._render)

    def __enter__(self) -> Lines:
        self._live.__enter__()
        return self._lines

    def __exit__(self, *exc_info: object) -> None:
        self._live.__exit__(*exc_info)

    def _render(self) -> Text:
        lines = self._lines.status()
        # Cut to the width: lines that wrap would make the display jump.
        return Text("\n".join(["", *lines]), style="bold", overflow="ellipsis", no_wrap=True)
