"""The whole of `advisor attention`: inspect, plan, then one backend after the other, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.attention import arms as planning
from advisor.attention import document as documents
from advisor.attention import grid
from advisor.attention.arms import Arm
from advisor.attention.measure import Measuring, Run, measure, process
from advisor.attention.rows import is_measured
from advisor.attention.shares import Shares
from advisor.engine.render import changes, serve_arguments
from advisor.errors import AdvisorError, InputError
from advisor.inspection.resolution import Resolution
from advisor.records import Candidate, Facts, GpuFacts, ModelFacts
from advisor.serving_profile.scrub import model_name
from advisor.serving_profile.store import file_name
from advisor.stepping.ahead import Ahead, Early
from advisor.stepping.conditions import cleaner, head, inspected
from advisor.stepping.started import engine_environment
from advisor.target_process import TargetProcess

FOLDER = Path("runs")
DEFAULT_BUDGET = "15m"


@dataclass(frozen=True)
class Wish:
    """What is asked for. `output` None: runs/attention-GPU-MODEL.json."""

    model: str
    gpu: str = "auto"
    serve_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] | None = None
    wanted: grid.Wanted = field(default_factory=grid.Wanted)
    budget_s: float = 900.0
    engine_python: str = ""
    output: Path | None = None
    command: str = ""


@dataclass
class _Work:
    """What the backends have in common while they are measured."""

    wish: Wish
    facts: Facts
    document: dict[str, Any]
    path: Path
    measuring: Measuring
    note: Callable[[str], None]
    ahead: Ahead


def attention(
    wish: Wish, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> tuple[dict[str, Any], Path]:
    """The document and its file, which grows with every answer of an engine.

    A backend whose engine does not start, dies or runs another one is told with its reason, and the others go on; when the
    budget ends, what was measured stays. What the file holds already under the same conditions is not measured again. Raises
    InputError and EnvironmentMismatch before anything is measured, and AdvisorError where nothing could be.
    """
    shares = Shares(clock() + wish.budget_s, clock)
    variables: dict[str, dict[str, str]] = {}  # which some releases are asked for a backend by
    early = Early(lambda gpu, model: _ahead(wish, gpu, model, variables), planning.OWN)
    with contextlib.closing(early):
        with Resolution(
            wish.engine_python, wish.model, wish.env
        ) as resolution:  # imports vLLM while the inspection does
            facts = inspected(wish.model, wish.gpu, wish.engine_python, wish.serve_args, wish.env, early.first_known)
            planning.check_not_fixed(wish.serve_args, wish.env, facts.engine.vllm_version)
            baseline = _baseline(resolution, wish)
            found = [_resolved(arm, wish, facts, resolution) for arm in planning.arms(facts, baseline)]
        variables |= {arm.process: _variables(arm, facts) for arm in found if not arm.refused}
        return _measured(wish, facts, found, grid.Limits.of(baseline), shares, early.ahead(facts), note)


def _measured(
    wish: Wish, facts: Facts, found: Sequence[Arm], limits: grid.Limits, shares: Shares, ahead: Ahead,
    note: Callable[[str], None],
) -> tuple[dict[str, Any], Path]:  # fmt: skip
    """All that are wanted of the arms that were `found`."""
    wanted = planning.chosen(found, wish.backends)
    cells, left_out = grid.cells(wish.wanted, limits)
    clean = cleaner(facts, wish.serve_args, wish.env)
    path = _path(wish, facts.gpu, facts.model)
    document = documents.opened(path, _head(wish, facts))
    refused = [(arm.name, clean.text(arm.refused)) for arm in wanted if arm.refused]
    documents.planned(document, [arm for arm in found if not arm.refused], refused, facts.engine.backends_error)
    documents.left_out(document, left_out)
    logs, gpu = FOLDER / path.stem, facts.gpu.kind != "cpu"
    measuring = Measuring(wish.model, cells, wish.wanted.steps, logs, clean.text, shares, gpu)
    _all([arm for arm in wanted if not arm.refused], _Work(wish, facts, document, path, measuring, note, ahead))
    documents.save(path, document)  # sentences of this release, also where nothing was measured anew
    _check_any(document)
    return document, path


def _path(wish: Wish, gpu: GpuFacts, model: ModelFacts) -> Path:
    return wish.output or FOLDER / f"attention-{gpu.slug}-{file_name(model_name(model))}.json"


def _ahead(wish: Wish, gpu: GpuFacts, model: ModelFacts, variables: Mapping[str, Mapping[str, str]]) -> Ahead:
    environment, logs = engine_environment(os.environ, wish.env), FOLDER / _path(wish, gpu, model).stem

    def make(name: str) -> TargetProcess:
        return process(name, wish.engine_python, {**environment, **variables.get(name, {})}, logs)

    return Ahead(make, gpu.kind != "cpu")


def _all(arms: Sequence[Arm], work: _Work) -> None:
    todo = [arm for arm in arms if not _skipped(arm, work)]
    work.ahead.only(todo[0].process if todo else None)
    for index, arm in enumerate(todo):
        if work.measuring.shares.is_over():
            names = ", ".join(arm.name for arm in todo[index:])
            work.note(f"{names}: not begun, the time of --budget is over; the same command goes on")
            return
        if not arm.default and arm.name == work.document["default"]:
            continue  # vLLM's own choice turned out to be this one
        _one(arm, todo[index + 1 :], work)


def _skipped(arm: Arm, work: _Work) -> bool:
    """Whether the file holds everything of it already."""
    name = _known_name(arm, work.document)
    done = documents.is_done(
        work.document["backends"].get(name), arm, work.measuring.cells, work.measuring.gpu
    )
    if done:
        work.note(f"{name}: in {work.path} already")
    return done


def _known_name(arm: Arm, document: Mapping[str, Any]) -> str:
    """vLLM's own choice has the name of what really ran, which may not be what was foretold."""
    return document["default"] if arm.default else arm.name


def _one(arm: Arm, others: Sequence[Arm], work: _Work) -> None:
    """Measure a backend; the file holds it when this returns."""
    argv = serve_arguments(work.wish.serve_args, Candidate(arm.settings), work.facts.engine.vllm_version)
    name, share_s = _known_name(arm, work.document), work.measuring.shares.share_s(arm, others)
    work.note(f"{name}: starting; its part of --budget is {share_s:.0f} s")
    following = others[0].process if others else None
    run = Run(arm, argv, share_s, work.document["backends"].get(name, {}), following)
    state: dict[str, Any] = {}
    for state in measure(run, work.measuring, work.ahead):
        if arm.default and state["active"].get("backends"):
            name = _renamed(name, state, work.document)
        work.document["backends"][name] = state
        documents.save(work.path, work.document)
    work.note(f"{name}: {state['status']}" + (f": {state['reason']}" if state["reason"] else ""))


def _variables(arm: Arm, facts: Facts) -> dict[str, str]:
    return changes(Candidate(arm.settings), facts.engine.vllm_version)[1]


def _renamed(name: str, state: Mapping[str, Any], document: dict[str, Any]) -> str:
    """The name of what runs by vLLM's own choice, as the engine says."""
    ran = planning.label(state["active"]["backends"], state["active"]["flash_attention_version"])
    if ran != name:
        document["backends"].pop(name, None)
        document["legal"] = list(dict.fromkeys(ran if one == name else one for one in document["legal"]))
        document["default"] = ran
    return ran


# ---------------------------------------------------------------- before anything is measured


def _baseline(resolution: Resolution, wish: Wish) -> Mapping[str, Any]:
    """What vLLM makes of the person's own arguments. Raises InputError where it refuses them, and for several GPUs."""
    answer = resolution.resolve(list(wish.serve_args), {})
    if not answer["ok"]:
        raise InputError(f"vLLM refuses the arguments: {answer['error']}", "they come from --serve-args")
    resolved: Mapping[str, Any] = answer["resolved"]
    if (ranks := resolved["tensor_parallel_size"]) > 1:
        raise InputError(f"--tensor-parallel-size {ranks}: one GPU is looked at", "leave it out of --serve-args")
    return resolved


def _resolved(arm: Arm, wish: Wish, facts: Facts, resolution: Resolution) -> Arm:
    """The arm, refused where vLLM's own configuration refuses its settings."""
    if arm.default or arm.refused:
        return arm
    candidate, version = Candidate(arm.settings), facts.engine.vllm_version
    try:
        answer = resolution.resolve(
            serve_arguments(wish.serve_args, candidate, version), changes(candidate, version)[1]
        )
    except InputError as impossible:  # this version has no spelling for it
        return replace(arm, refused=impossible.problem)
    return arm if answer["ok"] else replace(arm, refused=f"vLLM refuses it: {answer['error']}")


def _head(wish: Wish, facts: Facts) -> dict[str, Any]:
    clean = cleaner(facts, wish.serve_args, wish.env)
    found = head(facts, wish.serve_args, wish.env, wish.command, clean)
    return {**found, "steps": wish.wanted.steps, "chunk": wish.wanted.chunk}


def _check_any(document: Mapping[str, Any]) -> None:
    """Raises AdvisorError where no backend has a figure."""
    states = list(document["backends"].values())
    if any(is_measured(row) for state in states for row in state["rows"]):
        return
    if not states:
        raise AdvisorError("no backend could be measured: the time of --budget is too short", "raise --budget")
    reasons = [states[-1]["reason"], *(row["reason"] for row in states[-1]["rows"])]
    told = next((reason for reason in reasons if reason), "no reason was told")
    raise AdvisorError(f"no backend could be measured; the last one: {told}", states[-1].get("log"))
