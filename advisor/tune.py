"""The whole of `advisor tune`, in order: inspect, space, search, verdict, profile. The order is written nowhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import advisor
from advisor.engine.options import parse_options
from advisor.engine.render import serve_command
from advisor.errors import Interrupted
from advisor.inspection.resolution import Resolution
from advisor.journal import Study, now
from advisor.progress import Progress
from advisor.records import Candidate, Command, Facts, Rejection, StudyResult, Verdict
from advisor.report.time_account import time_account, time_line
from advisor.request import TuneRequest
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.store import write_profile
from advisor.space.candidates import SearchSpace, first_candidates
from advisor.study import setup
from advisor.study.ahead import Ahead, folder_of_tune
from advisor.study.cold_start import measure_cold_start
from advisor.study.endings import ends_are_told, termination_is_ctrl_c
from advisor.study.launches import Launches, baseline_trial, how_to_continue
from advisor.study.proof import prove
from advisor.study.searching import search_study
from advisor.study.sitting import first_of_sitting
from advisor.study.spaces import Spaces
from advisor.verdict.confirm import confirm
from advisor.verdict.decide import with_search_end
from advisor.verdict.disturbed import with_disturbances
from advisor.verdict.goals import with_front, with_goals


@dataclass(frozen=True)
class TuneAnswer:
    result: StudyResult
    profile_path: Path
    study_folder: Path


def tune(request: TuneRequest, progress: Progress) -> TuneAnswer:
    """Run or continue the study and write its profile.

    Raises the errors of advisor/errors.py; Interrupted after Ctrl-C, with the journal complete up to the last trial.
    """
    begun = time.monotonic()
    with ends_are_told(request), termination_is_ctrl_c(), contextlib.ExitStack() as stack:
        parse_options(request.serve_args)  # a mistake there should cost no import of vLLM
        resolution = Resolution(request.engine_python, request.model, request.serve_env)
        stack.enter_context(resolution)  # imports vLLM while the inspection does, in another process
        ahead = stack.enter_context(Ahead(request, lambda facts: folder_of_tune(request, facts)))  # and so does the launcher
        facts = setup.inspect(request, progress, ahead.begin)
        path = setup.profile_file(request, facts)
        mirror = setup.storage_mirror(request, facts)
        study = stack.enter_context(setup.open_study(request, facts, progress))
        client = stack.enter_context(setup.client(request, facts, study))  # imports vLLM while candidates are resolved
        spaces = Spaces(request, facts, study.folder, resolution, progress)
        space = spaces.of(baseline_trial(study.trials))
        setup.check_not_empty(space)
        runner = setup.runner(request, facts, study, client, progress.waiting, begun=ahead.launcher)
        stack.callback(runner.close)
        launch = Launches(request, study, space, runner, progress, mirror)
        with _time_is_told(begun, facts, study, progress):
            verdict = _measure(request, facts, study, spaces, launch, progress)
            result = _result(request, facts, study, launch.space, verdict)
            write_profile(path, build_profile(result))
        return TuneAnswer(result, path, study.folder)


@contextlib.contextmanager
def _time_is_told(begun: float, facts: Facts, study: Study, progress: Progress) -> Iterator[None]:
    """Where the wall time since `begun` went, for the person and in the study's folder, however the tune ends."""
    earlier = len(study.trials)
    try:
        yield
    finally:
        account = time_account(study.trials[earlier:], time.monotonic() - begun, facts.engine.import_s)
        progress.note(time_line(account))
        if len(study.trials) > earlier:  # a study that was finished before stays as it is
            study.add_account(account)


def _measure(
    request: TuneRequest, facts: Facts, study: Study, spaces: Spaces, launch: Launches, progress: Progress
) -> Verdict:
    """Baseline, search, confirmation: whatever the journal does not hold yet."""
    try:
        progress.stage("baseline: what is served today")
        for note in setup.goal_notes(request, launch.baseline()):
            progress.note(note)
        launch.take(spaces.of(launch.baseline()))
        ended = search_study(request, facts, study, spaces, launch, progress)
        progress.stage("verdict: fresh launches of the default and the finalists")
        verdict = prove(lambda: _judged(request, launch, ended, progress), request, launch, progress)
        measure_cold_start(request, launch, progress)
        return with_front(verdict, launch.done(), request.objective)
    except KeyboardInterrupt:
        raise Interrupted("stopped between two trials; no server is running", how_to_continue(study)) from None


def _judged(request: TuneRequest, launch: Launches, ended: str, progress: Progress) -> Verdict:
    """Fresh launches as far as they are missing, and what all of them say. `ended`: why the search did."""
    objective, budget = request.objective, request.budget
    since = first_of_sitting(launch.done(), now())
    verdict = confirm(
        lambda candidate, number: launch("confirm", candidate, number),
        launch.done, objective, budget, since, request.quality_tolerance, progress.note,
    )  # fmt: skip
    verdict = with_search_end(verdict, ended)
    verdict = with_goals(verdict, launch.done(), objective, request.workload, budget.confirm_rounds)
    return with_disturbances(verdict, launch.done())


@dataclass(frozen=True)
class Plan:
    """What a tune may launch: the baseline first, then the designed candidates, then the rest of the space.

    In which order it does, and which of them it leaves out, its figures decide (docs/search.md).
    """

    facts: Facts
    commands: tuple[tuple[Candidate, Command], ...]
    rejections: tuple[Rejection, ...]


def plan(request: TuneRequest, progress: Progress) -> Plan:
    """Inspect and resolve as `tune` does, and stop before anything is launched or written."""
    with Resolution(request.engine_python, request.model, request.serve_env) as resolution:
        facts = setup.inspect(request, progress)
        space = Spaces(request, facts, request.runs, resolution, progress).of()
    order = {item.key: item for item in (Candidate(), *first_candidates(space), *space.candidates)}
    commands = tuple((item, _command(request, facts, item)) for item in order.values())
    return Plan(facts, commands, space.rejections)


def _result(request: TuneRequest, facts: Facts, study: Study, space: SearchSpace, verdict: Verdict) -> StudyResult:
    return StudyResult(
        name=study.name,
        advisor_version=advisor.__version__,
        created_at=study.created_at,
        facts=facts,
        workload=request.workload,
        objective=request.objective,
        serve_args=request.serve_args,
        serve_env=request.serve_env,
        random_weights=setup.random_weights(request),
        trials=tuple(study.trials),
        verdict=verdict,
        baseline_command=_command(request, facts, Candidate()),
        tuned_command=_command(request, facts, verdict.winner),
        rejections=space.rejections,
        elapsed_s=study.spent_s,
        space=setup.space_name(request, facts),
    )


def _command(request: TuneRequest, facts: Facts, candidate: Candidate) -> Command:
    model, version = facts.model.model, facts.engine.vllm_version
    return serve_command(facts.engine.python, model, request.serve_args, request.serve_env, candidate, version)
