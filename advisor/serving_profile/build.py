"""A study's result as a profile. Pure: the same result gives the same profile."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping

from advisor.records import Candidate, Decision, Outcome, SamplingPlan, StudyResult, Trial
from advisor.search.scores import evidence
from advisor.serving_profile.args import ServeLine, format_line, line_of, quoted
from advisor.serving_profile.checks import costs, finalists, others, output_sides, proof_part
from advisor.serving_profile.figures import fresh_launches, launch_mean, left_behind, paired, running, side, starts
from advisor.serving_profile.schema import (
    SCHEMA,
    ActiveSides,
    DecisionPart,
    FrontEntry,
    Goal,
    Gpu,
    Measured,
    Model,
    Profile,
    Ratio,
    Rejected,
    Serve,
    Side,
    Software,
    Study,
    Tried,
    Workload,
)
from advisor.serving_profile.scrub import Scrubber, is_local_folder, model_name, scrubber

RANDOM_WEIGHTS = (
    "Measured with random weights: speed and memory are those of the architecture, the answers are noise. "
    "Measure again with the real weights where output decides the work: experts, speculation, stop tokens."
)
_PHASES = ("baseline", "search", "confirm", "soak", "restart", "quality", "cold-start")
_REASON_LENGTH = 200
_EXAMPLES = 3


def build_profile(result: StudyResult) -> Profile:
    """The profile of a finished study. Serving settings are the default's unless the decision is IMPROVED."""
    model = model_name(result.facts.model)
    clean = _scrubber(result, model)
    line = _serve_line(result, model, clean)
    improved = result.verdict.decision is Decision.IMPROVED
    other = result.verdict.winner if improved else result.verdict.challenger
    arms = {"default": Candidate()}
    if other and not other.is_baseline:
        arms["tuned" if improved else "challenger"] = other
    every = {name: fresh_launches(result.trials, candidate) for name, candidate in arms.items()}
    launches = paired(every)
    return Profile(
        schema=SCHEMA,
        model=_model(result, model, line),
        gpu=_gpu(result),
        software=_software(result),
        workload=_workload(result, [trial for arm in launches.values() for trial in arm], clean),
        objective=_goal(result, clean),
        decision=_decision(result, clean),
        serve=Serve(args=line.options(), env=dict(line.env), command=format_line(line)),
        measured=Measured(**{name: _side(result, launches[name], arm, clean) for name, arm in arms.items()}),
        active=ActiveSides(**{side_name: running(arm, clean.text) for side_name, arm in launches.items()}),
        output=output_sides(every, clean.text),
        proof=proof_part(result),
        study=_study(result, clean),
    )


def _side(result: StudyResult, launches: list[Trial], candidate: Candidate, clean: Scrubber) -> Side | None:
    """Figures from the fresh launches; starts and stops from all that the study made of it."""
    stops = left_behind(result.trials, candidate, clean.text)
    return side(launches, {**starts(result.trials, candidate), **({"left_behind": stops} if stops else {})})


def _scrubber(result: StudyResult, model: str) -> Scrubber:
    commands = [result.baseline_command, result.tuned_command, *(trial.command for trial in result.trials)]
    envs = [result.serve_env, *(command.env for command in commands)]
    return scrubber((result.facts.model.model, model), envs, [result.serve_args, *(c.argv for c in commands)])


def _serve_line(result: StudyResult, model: str, clean: Scrubber) -> ServeLine:
    improved = result.verdict.decision is Decision.IMPROVED
    command = result.tuned_command if improved else result.baseline_command
    line = line_of(command.argv, _portable_env(result, command.env))
    return ServeLine(model, tuple(clean.words(line.words)), clean.env(line.env))


def _portable_env(result: StudyResult, env: Mapping[str, str]) -> dict[str, str]:
    """Without paths of this machine that nobody asked for, such as a cache folder that the advisor set."""
    meant = {*result.serve_env, *result.verdict.winner.settings}
    return {name: value for name, value in env.items() if name in meant or not value.startswith("/")}


def _model(result: StudyResult, name: str, line: ServeLine) -> Model:
    facts, options = result.facts.model, line.options()
    return Model(
        id=name,
        local_folder=is_local_folder(facts),
        revision=facts.revision,
        config_hash=facts.config_hash,
        architecture=facts.architecture,
        dtype=str(options.get("dtype", facts.dtype or "auto")),
        quantization=facts.quantization,
        load_format=str(options.get("load-format", "auto")),
        random_weights=result.random_weights,
        note=RANDOM_WEIGHTS if result.random_weights else None,
    )


def _gpu(result: StudyResult) -> Gpu:
    gpu = result.facts.gpu
    return Gpu(
        name=gpu.name,
        slug=gpu.slug,
        count=gpu.count,
        memory_gib=gpu.memory_gib,
        compute_capability=gpu.compute_capability,
        driver=gpu.driver,
    )


def _software(result: StudyResult) -> Software:
    engine = result.facts.engine
    return Software(
        vllm=engine.vllm_version,
        torch=engine.torch_version,
        cuda=engine.cuda_version,
        flashinfer=engine.flashinfer_version,
        python=engine.python_version,
        advisor=result.advisor_version,
    )


def _workload(result: StudyResult, launches: Iterable[Trial], clean: Scrubber) -> Workload:
    load = result.workload
    return Workload(
        name=load.name,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        num_prompts=_plan(result).num_prompts if _plan(result) else load.num_prompts,
        concurrency=load.concurrency,
        rate_requests_s=load.rate,
        loads=list(load.loads) if load.loads else None,
        length_spread=load.length_spread,
        shared_prefix_tokens=load.shared_prefix_tokens,
        warmup_prompts=load.warmup_prompts,
        preemptions=load.preemptions,
        client_processes=_plan(result).client_processes if _plan(result) else None,
        seeds=sorted({sample.seed for trial in launches for sample in trial.samples if not sample.problems}),
        source=clean.text(load.source),
    )


def _plan(result: StudyResult) -> SamplingPlan | None:
    """What all samples of the study had in common; None in a study of an older advisor."""
    return next((trial.plan for trial in result.trials if trial.plan is not None), None)


def _goal(result: StudyResult, clean: Scrubber) -> Goal:
    goal = result.objective
    front = [
        FrontEntry(
            candidate=clean.text(point.candidate.label),
            values=dict(point.values),
            recommended=point.recommended,
            why=clean.text(point.why) or None,
        )
        for point in result.verdict.front
    ]
    return Goal(
        metric=goal.metric,
        better="more" if goal.maximise else "less",
        secondary=list(goal.secondary) or None,
        slo=[limit.label for limit in goal.slo] or None,
        find_load=goal.find_load,
        front=front or None,
    )


def _decision(result: StudyResult, clean: Scrubber) -> DecisionPart:
    verdict = result.verdict
    ratio = verdict.ratio
    return DecisionPart(
        outcome=verdict.decision,
        reason=clean.text(verdict.reason),
        challenger=clean.text(verdict.challenger.label) if verdict.challenger else None,
        ratio=Ratio(value=ratio.value, low=ratio.low, high=ratio.high) if ratio else None,
        launches_per_arm=verdict.launches,
        noise_percent=None if verdict.noise is None else verdict.noise * 100,
        noise_not_measured=clean.text(verdict.no_noise) or None,
        smallest_gain_percent=None if verdict.smallest_gain is None else verdict.smallest_gain * 100,
        others=others(verdict) or None,
        costs=costs(verdict) or None,
        finalists=finalists(verdict, clean.text) or None,
    )


def _study(result: StudyResult, clean: Scrubber) -> Study:
    gpus = 0 if result.facts.gpu.kind == "cpu" else result.facts.gpu.count
    outcomes = Counter(trial.outcome for trial in result.trials)
    phases = Counter(trial.phase for trial in result.trials)
    return Study(
        name=result.name,
        created_at=result.created_at,
        serve_args=" ".join(map(quoted, clean.words(result.serve_args))),
        serve_env=clean.env(result.serve_env),
        space=clean.text(result.space) if result.space else None,
        launches=len(result.trials),
        launches_by_phase={phase: phases[phase] for phase in _PHASES if phases[phase]},
        outcomes={outcome: outcomes[outcome] for outcome in Outcome if outcomes[outcome]},
        elapsed_min=result.elapsed_s / 60,
        gpu_min=sum(trial.total_s for trial in result.trials) * gpus / 60,
        candidates=_tried(result, clean),
        rejected=_rejected(result, clean),
    )


def _tried(result: StudyResult, clean: Scrubber) -> list[Tried]:
    """One entry a candidate: by score, best first, then those without one in the order of their first launch."""
    launches: dict[str, list[Trial]] = {}
    for trial in result.trials:
        launches.setdefault(trial.candidate.key, []).append(trial)
        seen = evidence(trial)
        if seen is not trial:  # its figure belongs to what ran
            launches.setdefault(seen.candidate.key, []).append(seen)
    entries = [_tried_entry(trials, result.objective.metric, clean) for trials in launches.values()]
    sign = -1 if result.objective.maximise else 1
    return sorted(entries, key=lambda entry: math.inf if entry.score is None else sign * entry.score)


def _tried_entry(trials: list[Trial], metric: str, clean: Scrubber) -> Tried:
    otherwise = [trial.credited_to for trial in trials if not trial.ok and trial.credited_to is not None]
    whole = [trial for trial in trials if trial.ok and trial.dropped is None]
    good = [mean for trial in whole if math.isfinite(mean := launch_mean(trial, metric))]
    dropped = next((trial.dropped for trial in trials if trial.ok and trial.dropped), None) if not good else None
    if dropped is not None and metric in dropped.estimate:
        good = [dropped.estimate[metric]]
    return Tried(
        candidate=clean.text(trials[0].candidate.label),
        state=Outcome.OK if good else trials[-1].outcome,
        dropped=clean.text(dropped.reason) if dropped else None,
        score=statistics.fmean(good) if good else None,
        launches=len(trials),
        ran_as=clean.text(otherwise[-1].label) if otherwise else None,
    )


def _rejected(result: StudyResult, clean: Scrubber) -> list[Rejected]:
    """Failed launches and rejections, one entry a reason; reasons that differ in numbers only are one."""
    cases = [(trial.outcome.value, trial.reason, trial.candidate) for trial in result.trials if not trial.ok]
    cases += [("not_launched", rejection.reason, rejection.candidate) for rejection in result.rejections]
    grouped: dict[tuple[str, str], list[tuple[str, Candidate]]] = {}
    for state, reason, candidate in cases:
        text = _shortened(clean.text(reason))
        grouped.setdefault((state, re.sub(r"\d+(\.\d+)?", "#", text)), []).append((text, candidate))
    return [_rejected_entry(state, found, clean) for (state, _), found in grouped.items()]


def _rejected_entry(state: str, found: list[tuple[str, Candidate]], clean: Scrubber) -> Rejected:
    labels = list(dict.fromkeys(clean.text(candidate.label) for _, candidate in found))
    return Rejected(state=state, reason=found[0][0], count=len(found), examples=labels[:_EXAMPLES])


def _shortened(text: str) -> str:
    return text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 3].rstrip() + "..."
