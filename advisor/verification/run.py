"""The whole of `advisor verify`, in order: profile, inspection, fresh launches in turn, judgement."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from advisor.engine.render import changes, serve_arguments
from advisor.errors import InputError, Interrupted
from advisor.inspection.resolution import Resolution
from advisor.journal import Study, now
from advisor.progress import Progress
from advisor.records import Candidate, Decision, Facts, Objective, Trial, Verdict, fingerprint
from advisor.request import TuneRequest
from advisor.search.budget import typical_cost_s
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.scrub import scrubber
from advisor.serving_profile.store import file_name, read_profile
from advisor.space.candidates import SearchSpace, build_space
from advisor.study import setup
from advisor.study.endings import ends_are_told, termination_is_ctrl_c
from advisor.study.launches import Launches, how_to_continue
from advisor.study.proof import prove
from advisor.study.sitting import first_of_sitting
from advisor.units import duration
from advisor.verdict.confirm import check_default, next_in_rounds
from advisor.verdict.decide import decide
from advisor.verdict.disturbed import with_disturbances
from advisor.verdict.fresh import BASELINE, failure, figures, fresh
from advisor.verdict.goals import with_goals
from advisor.verification import arms
from advisor.verification.differences import differences
from advisor.verification.document import document
from advisor.verification.judgement import Judgement, judge
from advisor.verification.origin import LEAST_LAUNCHES, Wish, default_side, objective_of, plan_of, request_of
from advisor.verification.words import lines

# A round's seeds are its number times a thousand: each day has rounds, and so prompts, of its own, far from those of any study.
_ROUNDS_A_DAY = 10_000
_DAYS = 190  # seeds stay below those of warm-ups


@dataclass(frozen=True)
class Answer:
    judgement: Judgement
    lines: tuple[str, ...]
    document: dict[str, Any]
    study_folder: Path


def verify(wish: Wish, progress: Progress) -> Answer:
    """Launch afresh what the profile recommends and its default, and say whether the profile holds.

    Raises the errors of advisor/errors.py; Interrupted after Ctrl-C, with the journal complete up to the last launch.
    """
    begun = time.monotonic()
    profile = read_profile(wish.profile)
    default_side(profile)
    arm = arms.recommended(profile) or (arms.challenger(profile) if wish.challenger else None)
    _check(wish, profile, arm)
    request = request_of(profile, wish, os.environ, study_name(wish, now()))
    with ends_are_told(request), termination_is_ctrl_c(), contextlib.ExitStack() as stack:
        resolution = stack.enter_context(Resolution(request.engine_python, request.model, request.serve_env))
        facts = setup.inspect(request, progress)
        found = differences(profile, facts)
        for item in found:
            progress.note(f"not as in the profile: {item.told}")
        study = stack.enter_context(_study(request, profile, facts, arm))
        progress.note(f"launches and logs in {study.folder}" + (": goes on" if study.resumed else ""))
        client = stack.enter_context(setup.client(request, facts, study))
        space = _space(request, facts, arm, resolution)
        resolution.close()
        plan = plan_of(profile, wish.client_processes)
        runner = setup.runner(request, facts, study, client, progress.waiting, plan)
        stack.callback(runner.close)
        launch = Launches(request, study, space, runner, progress, None)
        try:
            ended = _launch_all(launch, request, arm, begun, study.created_at)
            verdict = _verdict(request, launch, arm, progress, wish.proof)
        except KeyboardInterrupt:
            raise Interrupted("stopped between two launches; no server is running", how_to_continue(study)) from None
        trials = launch.done()
        judgement = judge(profile, trials, request.objective, arm, verdict, wish.tolerance)
        told = lines(profile, found, judgement, trials, wish.tolerance, ended)
        clean = scrubber((facts.model.model, profile.model.id), [request.serve_env], [request.serve_args]).text
        record = document(profile, wish, facts, found, judgement, trials, study.created_at, clean)
        return Answer(judgement, tuple(told), record, study.folder)


def objective_in(path: Path) -> Objective:
    """Of the profile in a file, for whoever tells of its launches."""
    return objective_of(read_profile(path))


def study_name(wish: Wish, today: str) -> str:
    """One a profile and day: the same command goes on with it."""
    return f"verify-{file_name(wish.profile.stem)}-{today[:10]}" + ("-challenger" if wish.challenger else "")


def first_round(created_at: str) -> int:
    """Number of a verification's first round: even, so that the default is launched first."""
    return _ROUNDS_A_DAY * (1 + date.fromisoformat(created_at[:10]).toordinal() % _DAYS)


def _check(wish: Wish, profile: Profile, arm: Candidate | None) -> None:
    if wish.launches < LEAST_LAUNCHES:
        raise InputError(f"--launches {wish.launches} gives no interval", f"give {LEAST_LAUNCHES} or more")
    if wish.challenger and arm is None:
        raise InputError("--challenger: the profile compared nothing with the default", "verify without it")
    if wish.proof and profile.decision.outcome is not Decision.IMPROVED:
        raise InputError(f"--proof: the profile says {profile.decision.outcome.value}, so that there is no winner to prove")


def _study(request: TuneRequest, profile: Profile, facts: Facts, arm: Candidate | None) -> Study:
    identity = {
        "profile": fingerprint(profile.model_dump(mode="json", by_alias=True)),
        "model": request.model,
        "config": facts.model.config_hash,
        "gpu": facts.gpu.name,
        "driver": facts.gpu.driver,
        "vllm": facts.engine.vllm_version,
        "torch": facts.engine.torch_version,
        "arm": arm.settings if arm else None,
        "client_processes": request.client_processes,
    }
    name = request.study or ""
    try:
        return Study(request.runs / name, name, identity)
    except InputError as error:  # its hints name an option of `advisor tune`
        hint = (error.hint or "").replace("name with --study", "folder with --runs").replace("--study", "--runs")
        raise InputError(error.problem, hint) from None


def _space(request: TuneRequest, facts: Facts, arm: Candidate | None, resolution: Resolution) -> SearchSpace:
    """What the installed vLLM makes of both sides, for the comparison with what runs. What it refuses the launch will tell."""
    version = facts.engine.vllm_version

    def asked(candidate: Candidate) -> dict[str, Any]:
        try:
            words, env = serve_arguments(request.serve_args, candidate, version), changes(candidate, version)[1]
        except InputError as error:
            raise InputError(
                f"vLLM {version} cannot express what the profile says: {error.problem}", "see `advisor migrate`"
            ) from None
        return resolution.resolve(words, env)

    space = build_space(
        (), facts.engine, lambda some: [asked(item) for item in some], gpu=facts.gpu, model=facts.model
    )
    if arm is not None and (answer := asked(arm))["ok"]:
        space.resolved[arm.key] = answer["resolved"]
    return space


def _launch_all(launch: Launches, request: TuneRequest, arm: Candidate | None, begun: float, created_at: str) -> str:
    """Rounds of the default and the arm in turn; returns why fewer than asked for were launched, or nothing."""
    others = [arm] if arm is not None else []
    if "start_s" in request.objective.metrics:
        _fill_cache(launch, others)
    since, first = first_of_sitting(launch.done(), now()), first_round(created_at)
    rounds = request.budget.confirm_rounds
    while step := next_in_rounds(launch.done(), others, rounds, since, first):
        left_s = request.budget.total_s - (time.monotonic() - begun)
        if (needed_s := _needed_s(launch.done(), step[1], 1 + len(others))) > left_s:
            whole = len(rounds_of(launch.done(), arm))
            return (
                f"budget: {whole} of {rounds} rounds were launched; another takes about {duration(needed_s)}, "
                f"{duration(max(left_s, 0.0))} were left"
            )
        launch("confirm", *step)
        if step[0].is_baseline:
            check_default(launch.done())
        # One that failed is out, as in a confirmation; the default's figure still needs its rounds.
        others = [item for item in others if failure(launch.done(), item, request.objective) is None]
    return ""


def _fill_cache(launch: Launches, others: Sequence[Candidate]) -> None:
    """The profile's starts found their compiled code: one uncounted start of each side leaves it there."""
    launch.baseline()
    had = {trial.candidate.key for trial in launch.done() if trial.phase == "search"}
    for item in others:
        if item.key not in had:
            launch("search", item)


def _needed_s(trials: Sequence[Trial], number: int, sides: int) -> float:
    """Seconds until the round is whole. Nothing is known before the first launch, which is made anyhow."""
    if not any(trial.ok for trial in trials):
        return 0.0
    there = sum(trial.round == number for trial in trials)
    return max(1, sides - there) * typical_cost_s(trials)


def rounds_of(trials: Sequence[Trial], arm: Candidate | None) -> set[int]:
    """Those in which every side was launched."""
    found = set(fresh(trials, BASELINE))
    return found & set(fresh(trials, arm)) if arm is not None else found


def _verdict(
    request: TuneRequest, launch: Launches, arm: Candidate | None, progress: Progress, proof: bool
) -> Verdict | None:
    if arm is None:
        return None

    def judged() -> Verdict:
        return verdict_of(launch.done(), request, arm)

    return prove(judged, request, launch, progress) if proof else judged()


def verdict_of(trials: Sequence[Trial], request: TuneRequest, arm: Candidate) -> Verdict:
    """As in a confirmation, but looked at once: how many rounds there are was settled before them, by a person or the clock."""
    objective = request.objective
    pairs = figures(trials, BASELINE, objective).keys() & figures(trials, arm, objective).keys()
    looked = max(LEAST_LAUNCHES, len(pairs))
    own = [trial for trial in trials if trial.phase != "search"]  # a start that only filled the cache
    verdict = decide(own, objective, looked, looked, request.quality_tolerance)
    verdict = with_goals(verdict, own, objective, request.workload, looked)
    return dataclasses.replace(with_disturbances(verdict, own), front=())

