"""Launches of a study: each one is journalled before anything else looks at it, mirrored, and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.engine.agreement import KEPT
from advisor.errors import Interrupted, LaunchesFailed
from advisor.journal import Study, now
from advisor.launch.tracebacks import error_lines
from advisor.measure.advice import advice
from advisor.progress import Progress
from advisor.records import Candidate, Objective, Outcome, Trial, fingerprint
from advisor.request import TuneRequest
from advisor.runner.base import Job, Runner
from advisor.runner.real import JobInterrupted
from advisor.search.budget import Budget
from advisor.search.racing import race_for, slice_seeds, slice_waves
from advisor.search.sampler import StorageMirror
from advisor.search.scores import score, slo_violation, told_scores
from advisor.space.candidates import SearchSpace
from advisor.study.setup import random_weights
from advisor.study.sitting import first_of_sitting
from advisor.verdict.confirm import seeds
from advisor.verdict.output_gate import gated
from advisor.verdict.proof import QUALITY, RESTART, SOAK

COLD_START = "cold-start"  # of the default: started, its answers kept, nothing measured
# The winner's cold start, its start on what that one compiled, the default's cold start.
CACHES = {SOAK: "empty", RESTART: "proof", COLD_START: "empty"}


class Launches:
    """Call it with a phase and a candidate; it returns the finished trial."""

    def __init__(
        self,
        request: TuneRequest,
        study: Study,
        space: SearchSpace,
        runner: Runner,
        progress: Progress,
        mirror: StorageMirror | None,
    ):
        self._samples, self._objective = request.samples, request.objective
        self._measure_all = request.measure_all
        self._budget, self._limits = request.budget, request.limits
        self._soak_s, self._random_weights = request.budget.soak_s, random_weights(request)
        self._study, self._space, self._runner = study, space, runner
        self._evaluation = request.quality_command
        self._progress, self._mirror = progress, mirror
        self._mirrored: StorageMirror | None = None  # the mirror, once the space is the search's

    def __call__(self, phase: str, candidate: Candidate, number: int = 0) -> Trial:
        """Launch, measure, journal. Raises Interrupted after Ctrl-C, when the server has ended and the trial is written."""
        job = self._job(phase, candidate, number)
        self._progress.trial_started(job.number, phase, candidate)
        try:
            trial = self._runner.run(job)
        except JobInterrupted as stop:
            self._study.append(stop.trial)
            problem = f"stopped during trial {job.number}; the server has ended"
            raise Interrupted(problem, how_to_continue(self._study)) from None
        trial = gated(trial, self.done(), self._study.folder, self._random_weights)
        self._study.append(trial)
        self._copy(trial)
        default = compared_with(trial, self.done())
        reference = score(default, self._objective) if default else None
        self._progress.trial_ended(trial, score(trial, self._objective), reference)
        return trial

    @property
    def folder(self) -> Path:
        """The study's."""
        return self._study.folder

    @property
    def space(self) -> SearchSpace:
        """What candidates are resolved and mirrored by."""
        return self._space

    def take(self, space: SearchSpace) -> None:
        """The space of the search: planned lists may have joined it. Only now does a mirror know which values there are."""
        self._space, self._mirrored = space, self._mirror
        for trial in self.done():
            self._copy(trial)

    def done(self) -> Sequence[Trial]:
        """All trials of the study so far, earlier sessions included; scores of another quality command than today's left out."""
        return same_evaluation(self._study.trials, self._evaluation)

    def baseline(self) -> Trial:
        """The baseline's measurement, taken now unless an earlier session did. Raises LaunchesFailed when it is not OK."""
        trial = baseline_trial(self.done()) or self("baseline", Candidate())
        check_baseline(trial, self._study)
        return trial

    def _job(self, phase: str, candidate: Candidate, number: int) -> Job:
        resolved = self._space.resolved.get(candidate.key, {})
        return Job(
            number=self._study.next_number,
            phase=phase,
            candidate=candidate,
            seeds=() if phase == COLD_START else seeds(phase, self._samples, number),
            round=number if phase == "confirm" else None,
            resolved={name: resolved[name] for name in KEPT if name in resolved},
            caches=CACHES.get(phase, "study"),
            soak_s=self._soak_s if phase == SOAK else 0.0,
            evaluate=phase in (SOAK, QUALITY),
            limits=self._budget.search_limits(self.done(), self._objective, self._limits) if phase == "search" else None,
            **({} if self._measure_all else self._race(phase)),
        )

    def _race(self, phase: str) -> dict[str, Any]:
        """What lets a launch of the search end before it is measured in full. The default takes the same slices; it goes on."""
        since = first_of_sitting(self.done(), now())
        race = race_for(self.done(), self._objective, self._samples, since) if phase == "search" else None
        return {
            "race": race,
            "slice_seeds": slice_seeds(phase, self.done(), self._objective),
            "slice_waves": slice_waves(self._objective),
        }

    def _copy(self, trial: Trial) -> None:
        if self._mirrored and trial.phase != COLD_START:
            reason = f"dropped {trial.dropped.reason}" if trial.ok and trial.dropped else trial.reason
            attributes = {"phase": trial.phase, "outcome": trial.outcome.value, "reason": reason}
            self._mirrored.add(
                self._space.settings,
                trial.number,
                trial.candidate,
                told_scores(trial, self._objective),
                attributes,
                slo_violation(trial, self._objective),
            )


def compared_with(trial: Trial, trials: Sequence[Trial]) -> Trial | None:
    """The default's launch that a trial's line is held against: the baseline in the search, that of its round in the confirmation.

    Fresh launches are executed and have other prompts, so the baseline tells nothing of them; None where there is none yet.
    """
    if trial.phase in ("baseline", "search"):
        return baseline_trial(trials)
    same = [item for item in trials if item.phase == trial.phase == "confirm" and item.round == trial.round]
    return next((item for item in reversed(same) if item.candidate.is_baseline and item.ok), None)


def same_evaluation(trials: Sequence[Trial], command: Sequence[str]) -> Sequence[Trial]:
    """Scores of two commands do not compare: where one is given, a score of another is none."""
    if not command:
        return trials
    own = fingerprint(list(command))
    other = [trial.quality is not None and trial.quality.command not in ("", own) for trial in trials]
    return [replace(trial, quality=None) if foreign else trial for trial, foreign in zip(trials, other, strict=True)]


def baseline_trial(trials: Sequence[Trial]) -> Trial | None:
    """The baseline's measurement, None where none succeeded yet: one that failed is tried again in the next session."""
    return next((trial for trial in trials if trial.phase == "baseline" and trial.ok), None)


def search_goes_on(budget: Budget, trials: Sequence[Trial], objective: Objective) -> bool:
    """Once confirmed, a study is searched further only for a larger budget than the one that ended its search.

    What confirmation and proof cost is left out, so that a finished study with the same budget launches nothing.
    """
    searched = [trial for trial in trials if trial.phase in ("baseline", "search")]
    return len(searched) == len(trials) or budget.stop_reason(searched, objective) is None


def check_baseline(trial: Trial, study: Study) -> None:
    if trial.ok:
        return
    log = study.folder / (trial.folder or "") / "server.log"
    lines = error_lines(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else []
    if trial.outcome is Outcome.INVALID_MEASUREMENT:  # the server itself was well
        lines = [advice(trial)]
    raise LaunchesFailed(
        f"the baseline ended as {trial.outcome.value}: {trial.reason}",
        "\n".join([*lines, f"log: {log}"]),
    )


def how_to_continue(study: Study) -> str:
    whole = sum(trial.outcome is not Outcome.INTERRUPTED for trial in study.trials)
    return f"finished trials kept in {study.kept_in}: {whole}; the same command goes on from there"
