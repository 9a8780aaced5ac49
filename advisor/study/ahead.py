"""The launcher begun ahead: it imports vLLM while the inspection and the resolution of candidates do. None needs the others.

It gets what the first launch will ask for. Should that ask for something else after all, it gets another launcher (launch/warm.py).
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from advisor.engine.render import serve_command
from advisor.errors import AdvisorError
from advisor.journal import read_events
from advisor.launch.caches import study_cache
from advisor.launch.launcher import Launcher, LauncherGone
from advisor.launch.server import launcher_environment
from advisor.launch.warm_choice import MODULE, WARM, command_refusal, machine_refusal
from advisor.measure.client import usable_cores
from advisor.records import Candidate, FirstFacts, Trial
from advisor.request import TuneRequest
from advisor.runner.real import served_model
from advisor.study.launches import baseline_trial
from advisor.study.setup import study_folder

# Inspection and resolution import with a core each already. With no third one the launcher would only take from them.
FEWEST_CORES = 3


class Ahead:
    """Context manager: whatever ends the block, the launcher ends with it.

    `folder`: the study's, which need not exist yet; None where nothing will be forked in it.
    """

    def __init__(self, request: TuneRequest, folder: Callable[[FirstFacts], Path | None]):
        self._request, self._folder = request, folder
        self.launcher: Launcher | None = None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.launcher is not None:
            self.launcher.close()

    def begin(self, facts: FirstFacts) -> None:
        """Where it will be wanted. What is wrong here the inspection or the first launch will tell, which need the same things."""
        with contextlib.suppress(AdvisorError, LauncherGone, OSError):
            if usable_cores() < FEWEST_CORES or not may_be_forked(self._request, facts):
                return
            if (folder := self._folder(facts)) is not None:
                self.launcher = _begun(self._request, facts, folder)


def may_be_forked(request: TuneRequest, facts: FirstFacts) -> bool:
    """Whether the default's server may be, by what is known of request and machine."""
    if request.launcher != WARM or "start_s" in request.objective.metrics:
        return False
    return not (
        machine_refusal(sys.platform, platform.release(), facts.gpu.kind)
        or command_refusal(_argv(request, facts), request.engine_python)
    )


def folder_of_tune(request: TuneRequest, facts: FirstFacts) -> Path | None:
    """The folder of a tune's study, None where its journal says that its search is over. Raises InputError."""
    folder = study_folder(request, facts)
    journal = folder / "trials.jsonl"
    events = read_events(journal) if journal.exists() else []
    trials = [event["trial"] for event in events if event["event"] == "trial"]
    return folder if forks_next(request, trials) else None


def forks_next(request: TuneRequest, trials: Sequence[Trial]) -> bool:
    """Whether a tune that goes on after `trials` will fork as far as they tell; a search may still find nothing worth a launch.

    One that is confirmed is searched on for a larger budget only; its launcher is begun when it is wanted.
    """
    baseline = baseline_trial(trials)
    if baseline is None:
        return True
    searched = all(trial.phase in ("baseline", "search") for trial in trials)
    return searched and baseline.launcher == WARM and request.budget.stop_reason(trials, request.objective) is None


def _begun(request: TuneRequest, facts: FirstFacts, folder: Path) -> Launcher:
    python, env = request.engine_python, request.serve_env
    shared = launcher_environment(os.environ, study_cache(folder, os.environ), env, python)
    words = _argv(request, facts)[len(MODULE) + 1 :]
    return Launcher(python, facts.model.architecture, shared, argv=words)


def _argv(request: TuneRequest, facts: FirstFacts) -> tuple[str, ...]:
    model, python = served_model(facts.model.model), request.engine_python
    return serve_command(python, model, request.serve_args, request.serve_env, Candidate()).argv
