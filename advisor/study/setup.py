"""What stands before the first launch: facts, the study's folder, the benchmark client. The space: study/spaces.py."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from advisor.engine.options import parse_options
from advisor.engine.render import check_version
from advisor.errors import InputError
from advisor.inspection.inspect_all import inspect_all
from advisor.journal import Study
from advisor.launch.launcher import Launcher
from advisor.launch.warm import WarmLauncher
from advisor.launch.warm_choice import COLD
from advisor.measure import taints
from advisor.measure.client import BenchClient
from advisor.measure.load_search import told
from advisor.measure.plan import known_prompts, plan_of
from advisor.measure.saturation import load_note
from advisor.measure.workload import check_fits
from advisor.progress import Progress
from advisor.records import Active, Facts, FirstFacts, SamplingPlan, Trial
from advisor.request import TuneRequest
from advisor.runner.base import Earlier
from advisor.runner.real import RealRunner
from advisor.search.sampler import StorageMirror
from advisor.search.scores import slo_breaches
from advisor.serving_profile.store import check_writable, file_name, profile_path
from advisor.space.candidates import SearchSpace
from advisor.space.spec import SpaceSpec, load_space
from advisor.target_process import dropped_variables

_CPU_CACHE = "VLLM_CPU_KVCACHE_SPACE"  # unset, vLLM 0.32 took 17 of 24 GiB, and 65 s to start with it


def inspect(
    request: TuneRequest, progress: Progress, first_known: Callable[[FirstFacts], None] = lambda _facts: None
) -> Facts:
    """GPU, engine and model, checked against what was asked for. `first_known`: as for inspect_all."""
    progress.stage("inspect: GPU, vLLM, model")
    python, arguments, env = request.engine_python, request.serve_args, request.serve_env
    facts = inspect_all(request.model, request.gpu, python, arguments, env, first_known)
    check_version(facts.engine.vllm_version)
    check_fits(request.workload, _max_length(request, facts))
    ignored = [name for name in dropped_variables(os.environ) if name not in request.serve_env]
    if ignored:
        progress.note(f"not handed to the server: {', '.join(ignored)} (use --env NAME=VALUE for what is meant)")
    progress.note(
        f"{facts.gpu.name}, vLLM {facts.engine.vllm_version}, {facts.model.architecture}"
        + (" with random weights" if random_weights(request) else "")
    )
    if facts.gpu.kind == "cpu" and _CPU_CACHE not in request.serve_env:
        progress.note(f"without --env {_CPU_CACHE}=4 (GiB) vLLM may take most of the memory for its cache, and minutes to clear it")
    return facts


def _max_length(request: TuneRequest, facts: Facts) -> int:
    given = parse_options(request.serve_args).values.get("--max-model-len")
    return int(given) if given and str(given).isdigit() else facts.model.max_length


def random_weights(request: TuneRequest) -> bool:
    return parse_options(request.serve_args).values.get("--load-format") == "dummy"


def profile_file(request: TuneRequest, facts: Facts) -> Path:
    """Where the profile goes, proven writable before anything is measured."""
    file = (
        request.output
        if request.output.suffix in (".yaml", ".yml")
        else profile_path(request.output, facts, request.workload, request.objective)
    )
    check_writable(file)
    return file


def study_name(request: TuneRequest, facts: Facts | FirstFacts) -> str:
    """The person's, or one for each goal: their trials are measured and searched for different things."""
    words = (Path(facts.model.model).resolve().name, facts.gpu.slug, request.workload.name, request.objective.slug)
    return request.study or "-".join(filter(None, words))


def study_folder(request: TuneRequest, facts: Facts | FirstFacts) -> Path:
    return request.runs / file_name(study_name(request, facts))


def storage_mirror(request: TuneRequest, facts: Facts) -> StorageMirror | None:
    """The Optuna storage, opened before anything is measured. Raises InputError where it cannot be."""
    if not request.storage:
        return None
    return StorageMirror(request.storage, study_name(request, facts), request.objective)


def open_study(request: TuneRequest, facts: Facts, progress: Progress) -> Study:
    """The study's folder, new or continued. Raises InputError where its trials could not be compared with new ones."""
    model, name = facts.model, study_name(request, facts)
    identity = {
        "model": model.model,
        "config": model.config_hash,
        "gpu": facts.gpu.name,
        "driver": facts.gpu.driver,
        "vllm": facts.engine.vllm_version,
        "torch": facts.engine.torch_version,
        "workload": request.workload,
        "objective": ",".join(request.objective.metrics),
        "slo": ",".join(limit.label for limit in request.objective.slo) or None,
        "find_load": request.objective.find_load,
        "serve_args": request.serve_args,
        "env": request.serve_env,
        "space": space_spec(request, facts).model_dump(mode="json", by_alias=True),
        "samples": request.samples,
    }
    study = Study(study_folder(request, facts), name, identity)
    again = f": goes on, trials so far: {len(study.trials)}" if study.resumed else ""
    progress.note(f"study {study.name} in {study.folder}{again}")
    progress.resumed(study.spent_s)
    return study


def space_spec(request: TuneRequest, facts: Facts) -> SpaceSpec:
    return request.space or load_space("cpu" if facts.gpu.kind == "cpu" else "default")


def space_name(request: TuneRequest, facts: Facts) -> str:
    """`scheduler` of a space that comes with the advisor, `NAME.yaml` of a person's own file, whatever it calls itself."""
    spec = space_spec(request, facts)
    try:
        shipped = spec == load_space(spec.name)
    except InputError:
        shipped = False
    return spec.name if shipped else f"{spec.name}.yaml"


def check_not_empty(space: SearchSpace) -> None:
    """A tune that can only find what it began with would cost seven launches and tell nothing."""
    if space.candidates:
        return
    reasons = Counter(item.reason for item in space.rejections).most_common(1)
    raise InputError(
        "the search space leaves nothing to try beside the default: "
        + (f"{len(space.rejections)} combinations dropped, most often: {reasons[0][0]}" if reasons else "it is empty"),
        "--dry-run lists what is dropped and why; choose another --space",
    )


def client(request: TuneRequest, facts: Facts, study: Study) -> BenchClient:
    trust = parse_options(request.serve_args).values.get("--trust-remote-code") is True
    return BenchClient(
        facts.engine.python,
        facts.model.model,
        trust_remote_code=trust,
        root=study.folder,
        log=study.folder / "bench.log",
        slo=request.objective.slo,
        vocabulary=facts.model.vocab_size,
    )


def goal_notes(request: TuneRequest, baseline: Trial) -> list[str]:
    """What the baseline tells of output, objective, SLO and load before anything is searched."""
    goal = request.objective
    gate = baseline.gate
    notes = [f"{gate.reason}: no candidate can be judged against it"] if gate and gate.passed is False else []
    notes += [note] if (note := load_note(baseline.samples, request.workload, goal)) else []
    if goal.find_load and baseline.loads:
        notes.append(told(baseline.loads, goal.find_load))
    notes += [f"the default breaks the SLO: {breach}" for breach in slo_breaches(baseline, goal)]
    if goal.slo and not goal.constrained:
        share = sum(sample.slo_share or 0.0 for sample in baseline.samples) / max(1, len(baseline.samples))
        notes.append(f"{share:.1%} of the default's requests are within the SLO")
    return notes


def runner(
    request: TuneRequest,
    facts: Facts,
    study: Study,
    bench: BenchClient,
    waiting: Callable[[str, float], None],
    plan: SamplingPlan | None = None,
    begun: Launcher | None = None,
) -> RealRunner:
    """Real launches on this machine, in the study's folder. `plan`: one that the baseline need not decide any more. `begun`: a
    launcher that imports already (study/ahead.py).
    """
    return RealRunner(
        facts, request.workload, request.serve_args, request.serve_env, study.folder, bench, request.limits, waiting,
        request.client_processes, request.objective, _earlier(study.trials, plan), judge_machine=taints.judge,
        evaluation=request.quality_command, evaluation_timeout_s=request.quality_timeout_s,
        warm=_warm_launcher(request, facts, study, waiting, begun),
    )  # fmt: skip


def _warm_launcher(
    request: TuneRequest, facts: Facts, study: Study, waiting: Callable[[str, float], None], begun: Launcher | None
) -> WarmLauncher | None:
    """None where baseline and search are launched cold: as wished, for a start's own sake, or as the baseline was."""
    baseline = next((trial for trial in study.trials if trial.phase == "baseline" and trial.ok), None)
    wanted = baseline.launcher if baseline else request.launcher
    if wanted == COLD or "start_s" in request.objective.metrics:
        if begun is not None:  # whoever began it foresaw something else: it must not import beside a launch
            begun.close()
        return None
    python, log = facts.engine.python, study.folder / "launcher.log"
    model, kind, env = facts.model.architecture, facts.gpu.kind, request.serve_env
    return WarmLauncher(python, model, kind, env, log.resolve(), lambda what: waiting(what, 0.0), begun)


def _earlier(trials: Sequence[Trial], plan: SamplingPlan | None = None) -> Earlier:
    baseline = next((trial for trial in trials if trial.phase == "baseline" and trial.ok), None)
    default = baseline.active if baseline else Active()
    return Earlier(plan or plan_of(trials), taints.reference(trials), default, known_prompts(trials))
