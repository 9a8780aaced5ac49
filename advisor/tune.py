"""The whole of `advisor tune`, in order: inspect, space, search, verdict, profile. The order is written nowhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import advisor
from advisor.engine.agreement import KEPT
from advisor.engine.options import parse_options
from advisor.engine.render import changes, check_version, fixed_by, serve_arguments, serve_command
from advisor.errors import EnvironmentMismatch, InputError, Interrupted, LaunchesFailed
from advisor.inspection.inspect_all import inspect_all
from advisor.inspection.resolution import Resolution
from advisor.launch.tracebacks import error_lines
from advisor.measure.client import BenchClient
from advisor.measure.workload import check_fits
from advisor.progress import Progress
from advisor.records import Candidate, Command, Facts, Objective, Outcome, Rejection, StudyResult, Trial, Verdict
from advisor.request import TuneRequest
from advisor.runner.base import Job, Runner
from advisor.runner.real import JobInterrupted, RealRunner
from advisor.search.budget import Budget
from advisor.search.loop import search
from advisor.search.sampler import Sampler, StorageMirror
from advisor.search.scores import score
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.store import check_writable, file_name, profile_path, write_profile
from advisor.space.candidates import Limits, SearchSpace, build_space, concrete_settings, first_candidates
from advisor.space.spec import SpaceSpec, load_space
from advisor.store import Study
from advisor.target_process import dropped_variables
from advisor.verdict.confirm import confirm, seeds

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass(frozen=True)
class TuneAnswer:
    result: StudyResult
    profile_path: Path
    study_folder: Path


def tune(request: TuneRequest, progress: Progress) -> TuneAnswer:
    """Run or continue the study and write its profile.

    Raises the errors of advisor/errors.py; Interrupted after Ctrl-C, with the journal complete up to the last trial.
    """
    with _ends_are_told(request), _termination_is_ctrl_c(), contextlib.ExitStack() as stack:
        parse_options(request.serve_args)  # a mistake there should cost no import of vLLM
        resolution = Resolution(request.engine_python, request.model, request.serve_env)
        stack.enter_context(resolution)  # imports vLLM while the inspection does, in another process
        facts = _inspect(request, progress)
        path = _profile_file(request, facts)
        spec = _spec(request, facts)
        study = stack.enter_context(_open_study(request, facts, spec))
        progress.note(
            f"study {study.name} in {study.folder}"
            + (f": continues after {len(study.trials)} trials" if study.resumed else "")
        )
        progress.resumed(study.spent_s)
        client = stack.enter_context(_client(request, facts, study))  # imports vLLM while the candidates are resolved
        space = _space(request, spec, facts, resolution, progress)
        _check_not_empty(space)
        resolution.close()
        runner = RealRunner(
            facts,
            request.workload,
            request.serve_args,
            request.serve_env,
            study.folder,
            client,
            request.limits,
            progress.waiting,
        )
        verdict = _measure(request, study, space, runner, progress)
        result = _result(request, facts, study, space, verdict)
        write_profile(path, build_profile(result))
        return TuneAnswer(result, path, study.folder)


@dataclass(frozen=True)
class Plan:
    """What a tune would launch: the baseline first, then the designed candidates, then the rest of the space."""

    facts: Facts
    commands: tuple[tuple[Candidate, Command], ...]
    rejections: tuple[Rejection, ...]


def plan(request: TuneRequest, progress: Progress) -> Plan:
    """Inspect and resolve as `tune` does, and stop before anything is launched or written."""
    with Resolution(request.engine_python, request.model, request.serve_env) as resolution:
        facts = _inspect(request, progress)
        space = _space(request, _spec(request, facts), facts, resolution, progress)
    order = {item.key: item for item in (Candidate(), *first_candidates(space), *space.candidates)}
    commands = tuple((item, _command(request, facts, item)) for item in order.values())
    return Plan(facts, commands, space.rejections)


# ---------------------------------------------------------------- inspect


def _inspect(request: TuneRequest, progress: Progress) -> Facts:
    progress.stage("inspect: GPU, vLLM, model")
    facts = inspect_all(request.model, request.gpu, request.engine_python, request.serve_args, request.serve_env)
    check_version(facts.engine.vllm_version)
    check_fits(request.workload, _max_length(request, facts))
    ignored = [name for name in dropped_variables(os.environ) if name not in request.serve_env]
    if ignored:
        progress.note(f"not handed to the server: {', '.join(ignored)} (use --env NAME=VALUE for what is meant)")
    progress.note(
        f"{facts.gpu.name}, vLLM {facts.engine.vllm_version}, {facts.model.architecture}"
        + (" with random weights" if _random_weights(request) else "")
    )
    return facts


def _max_length(request: TuneRequest, facts: Facts) -> int:
    given = parse_options(request.serve_args).values.get("--max-model-len")
    return int(given) if given and str(given).isdigit() else facts.model.max_length


def _random_weights(request: TuneRequest) -> bool:
    return parse_options(request.serve_args).values.get("--load-format") == "dummy"


# ---------------------------------------------------------------- study


def _profile_file(request: TuneRequest, facts: Facts) -> Path:
    """Where the profile goes, proven writable before anything is measured."""
    file = (
        request.output
        if request.output.suffix in (".yaml", ".yml")
        else profile_path(request.output, facts, request.workload)
    )
    check_writable(file)
    return file


def _open_study(request: TuneRequest, facts: Facts, spec: SpaceSpec) -> Study:
    model = facts.model
    name = request.study or f"{Path(model.model).resolve().name}-{facts.gpu.slug}-{request.workload.name}"
    identity = {
        "model": model.model,
        "config": model.config_hash,
        "gpu": facts.gpu.name,
        "driver": facts.gpu.driver,
        "vllm": facts.engine.vllm_version,
        "torch": facts.engine.torch_version,
        "workload": request.workload,
        "objective": request.objective.metric,
        "serve_args": request.serve_args,
        "env": request.serve_env,
        "space": spec.model_dump(mode="json", by_alias=True),
        "samples": request.samples,
    }
    return Study(request.runs / file_name(name), name, identity)


# ---------------------------------------------------------------- space


def _spec(request: TuneRequest, facts: Facts) -> SpaceSpec:
    return request.space or load_space("cpu" if facts.gpu.kind == "cpu" else "default")


def _resolve(request: TuneRequest, candidate: Candidate, version: str, resolution: Resolution) -> dict:
    """What the installed vLLM makes of a candidate; not ok where its version has no words for it."""
    try:
        arguments, env = serve_arguments(request.serve_args, candidate, version), changes(candidate, version)[1]
    except InputError as error:
        return {"ok": False, "error": error.problem}
    return resolution.resolve(arguments, env)


def _space(
    request: TuneRequest, spec: SpaceSpec, facts: Facts, resolution: Resolution, progress: Progress
) -> SearchSpace:
    """The distinct legal candidates, as the installed vLLM resolves them."""
    progress.stage("space: candidates that this vLLM accepts, each resolved once")
    fixed = fixed_by(parse_options(request.serve_args), request.serve_env, facts.engine.vllm_version)

    def resolve(candidates: Sequence[Candidate]) -> list[dict]:
        return [_resolve(request, item, facts.engine.vllm_version, resolution) for item in candidates]

    baseline = resolve([Candidate()])[0]
    if not baseline["ok"]:
        raise LaunchesFailed(f"vLLM refuses the baseline: {baseline['error']}", "mend --serve-args or --env")
    limits = Limits(baseline["resolved"]["max_num_seqs"], baseline["resolved"]["max_num_batched_tokens"])
    settings = concrete_settings(spec, facts.engine, facts.gpu, request.workload, limits, fixed)
    space = build_space(settings, facts.engine, resolve)
    progress.note(
        f"{len(space.candidates)} distinct candidates; {len(space.rejections)} combinations dropped before launch"
    )
    return space


def _check_not_empty(space: SearchSpace) -> None:
    """A tune that can only find what it began with would cost seven launches and tell nothing."""
    if space.candidates:
        return
    reasons = Counter(item.reason for item in space.rejections).most_common(1)
    raise InputError(
        "the search space leaves nothing to try beside the default: "
        + (f"{len(space.rejections)} combinations dropped, most often: {reasons[0][0]}" if reasons else "it is empty"),
        "--dry-run lists what is dropped and why; choose another --space",
    )


# ---------------------------------------------------------------- search and verdict


def _client(request: TuneRequest, facts: Facts, study: Study) -> BenchClient:
    trust = parse_options(request.serve_args).values.get("--trust-remote-code") is True
    return BenchClient(
        facts.engine.python,
        facts.model.model,
        trust_remote_code=trust,
        root=study.folder,
        log=study.folder / "bench.log",
    )


def _measure(request: TuneRequest, study: Study, space: SearchSpace, runner: Runner, progress: Progress) -> Verdict:
    """Baseline, search, confirmation: whatever the journal does not hold yet."""
    objective, budget = request.objective, request.budget
    mirror = StorageMirror(request.storage, study.name, objective, space.settings) if request.storage else None

    def launch(phase: str, candidate: Candidate, number: int = 0) -> Trial:
        resolved = space.resolved.get(candidate.key, {})
        job = Job(
            number=study.next_number,
            phase=phase,
            candidate=candidate,
            seeds=seeds(phase, request.samples, number),
            round=number if phase == "confirm" else None,
            resolved={name: resolved[name] for name in KEPT if name in resolved},
        )
        progress.trial_started(job.number, phase, candidate)
        try:
            trial = runner.run(job)
        except JobInterrupted as stop:
            study.append(stop.trial)
            raise Interrupted(
                f"stopped during trial {job.number}; the server has ended", _how_to_continue(study)
            ) from None
        study.append(trial)
        if mirror:
            _mirror(mirror, trial, objective)
        progress.trial_ended(trial, score(trial, objective), _baseline_score(study, objective))
        return trial

    try:
        for trial in study.trials if mirror else ():
            _mirror(mirror, trial, objective)
        progress.stage("baseline: what is served today")
        baseline = _baseline_trial(study) or launch("baseline", Candidate())
        _check_baseline(baseline, study)
        if _search_goes_on(budget, study.trials):
            progress.stage("search")
            sampler = Sampler(space, objective, request.seed)
            reason = search(
                lambda candidate: launch("search", candidate), sampler, budget, objective, lambda: study.trials
            )
            progress.note(f"search ended: {reason}")
        progress.stage("verdict: fresh launches of the default and the best candidate")
        return confirm(
            lambda candidate, number: launch("confirm", candidate, number),
            lambda: study.trials,
            objective,
            budget.confirm_rounds,
        )
    except KeyboardInterrupt:
        raise Interrupted("stopped between two trials; no server is running", _how_to_continue(study)) from None


def _search_goes_on(budget: Budget, trials: Sequence[Trial]) -> bool:
    """Once confirmed, a study is searched further only for a larger budget than the one that ended its search.

    What the confirmation cost is left out, so that a finished study with the same budget launches nothing.
    """
    searched = [trial for trial in trials if trial.phase != "confirm"]
    return len(searched) == len(trials) or budget.stop_reason(searched) is None


def _mirror(mirror: StorageMirror, trial: Trial, objective: Objective) -> None:
    attributes = {"phase": trial.phase, "outcome": trial.outcome.value, "reason": trial.reason}
    mirror.add(trial.number, trial.candidate, score(trial, objective), attributes)


def _baseline_trial(study: Study) -> Trial | None:
    """The baseline's measurement, None where none succeeded yet: one that failed is tried again in the next session."""
    return next((trial for trial in study.trials if trial.phase == "baseline" and trial.ok), None)


def _baseline_score(study: Study, objective: Objective) -> float | None:
    trial = _baseline_trial(study)
    return score(trial, objective) if trial else None


def _check_baseline(trial: Trial, study: Study) -> None:
    if trial.ok:
        return
    log = study.folder / (trial.folder or "") / "server.log"
    lines = error_lines(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else []
    if trial.outcome is Outcome.INVALID_MEASUREMENT:  # the server itself was well
        lines = ["is this machine busy with something else? the same command measures it again"]
    raise LaunchesFailed(
        f"the baseline ended as {trial.outcome.value}: {trial.reason}",
        "\n".join([*lines, f"log: {log}"]),
    )


def _how_to_continue(study: Study) -> str:
    whole = sum(trial.outcome is not Outcome.INTERRUPTED for trial in study.trials)
    return f"finished trials kept in {study.folder}: {whole}; the same command goes on from there"


# ---------------------------------------------------------------- result


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
        random_weights=_random_weights(request),
        trials=tuple(study.trials),
        verdict=verdict,
        baseline_command=_command(request, facts, Candidate()),
        tuned_command=_command(request, facts, verdict.winner),
        rejections=space.rejections,
        elapsed_s=study.spent_s,
    )


def _command(request: TuneRequest, facts: Facts, candidate: Candidate) -> Command:
    model, version = facts.model.model, facts.engine.vllm_version
    return serve_command(facts.engine.python, model, request.serve_args, request.serve_env, candidate, version)


@contextlib.contextmanager
def _ends_are_told(request: TuneRequest) -> Iterator[None]:
    """Ctrl-C outside of the launches, and a full disk: the journal holds whole trials only, so the study can go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("stopped; no server is running", "the same command goes on from what was measured") from None
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = error.filename or request.runs
        raise EnvironmentMismatch(
            f"{error.strerror}: {where}",
            f"finished trials are kept in {request.runs}: the same command goes on from there",
        ) from None


@contextlib.contextmanager
def _termination_is_ctrl_c() -> Iterator[None]:
    """`kill` and a stopping container get the same orderly end as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
