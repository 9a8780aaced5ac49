"""The default's cold start, where no launch has it: what the warm launcher forks has its imports behind it."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.launch.caches import forget_proof_cache
from advisor.progress import Progress
from advisor.records import Candidate, Outcome, Trial
from advisor.request import TuneRequest
from advisor.search.budget import IMPORTS
from advisor.study.launches import COLD_START, Launches, baseline_trial
from advisor.units import duration


def measure_cold_start(request: TuneRequest, launch: Launches, progress: Progress) -> None:
    """One start of the default from empty caches, nothing measured on it, as far as the budget lasts."""
    needed_s, left_s = cold_start_s(launch.done()), request.budget.left_s(launch.done())
    if needed_s is None:
        return
    if needed_s > left_s:
        takes = f"it takes about {duration(needed_s)}, the budget leaves {duration(max(left_s, 0.0))}"
        progress.note(f"the default's cold start was not measured: {takes}")
        return
    progress.stage("cold start: the default from empty caches")
    launch(COLD_START, Candidate())
    forget_proof_cache(launch.folder)


def cold_start_s(trials: Sequence[Trial]) -> float | None:
    """What the launch will take, seconds; None where it is known, was tried, or is no other than a warm one.

    Not less than the forked start, which compiled as well, and the imports that it had behind it.
    """
    baseline = baseline_trial(trials)
    if baseline is None or baseline.launcher == "cold" or not _compiled(baseline):
        return None
    own = [trial for trial in trials if trial.candidate.is_baseline]
    if any(trial.launcher == "cold" and _compiled(trial) for trial in own):
        return None
    if any(trial.phase == COLD_START and trial.outcome is not Outcome.INTERRUPTED for trial in own):
        return None
    return (baseline.start_s or 0.0) + IMPORTS * baseline.imports_s + (baseline.stop_s or 0.0)


def _compiled(trial: Trial) -> bool:
    return trial.start_up is not None and trial.start_up.cache == "cold"
