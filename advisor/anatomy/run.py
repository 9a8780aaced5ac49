"""The whole of `advisor anatomy`: inspect, plan, then one engine after the other, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.anatomy import document as documents
from advisor.anatomy import modes as planning
from advisor.anatomy.measure import Measuring, Turn, measure, process
from advisor.engine.render import serve_arguments
from advisor.errors import AdvisorError, InputError
from advisor.inspection.resolution import Resolution
from advisor.records import Candidate, Facts, FirstFacts, GpuFacts, ModelFacts
from advisor.serving_profile.scrub import Scrubber, model_name
from advisor.serving_profile.store import file_name
from advisor.stepping.ahead import Ahead, Early
from advisor.stepping.conditions import cleaner, head, inspected
from advisor.stepping.started import engine_environment

FOLDER = Path("runs")


@dataclass(frozen=True)
class Wish:
    """What is asked for. `output` None: runs/anatomy-GPU-MODEL.json."""

    model: str
    gpu: str = "auto"
    serve_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    modes: tuple[planning.Mode, ...] = planning.MODES
    batch_sizes: tuple[int, ...] | None = None
    context: int = planning.DEFAULT_CONTEXT
    steps: int = 60
    engine_python: str = ""
    output: Path | None = None
    command: str = ""


def anatomy(wish: Wish, note: Callable[[str], None]) -> tuple[dict[str, Any], Path]:
    """The document and its file, which grows with every answer of an engine.

    A mode whose engine does not start, or dies, is told with its reason, and the others go on. What the file holds already under
    the same conditions is not measured again. Raises InputError and EnvironmentMismatch before anything is measured, and the
    reason of the last mode where none could be.
    """
    early = Early(lambda gpu, model: _ahead(wish, gpu, model), wish.modes[0].name)
    with contextlib.closing(early):
        with Resolution(
            wish.engine_python, wish.model, wish.env
        ) as resolution:  # imports vLLM while the inspection does
            facts = _inspected(wish, early.first_known)
            planned = _plan(wish, facts, resolution)
        return _measured(wish, facts, planned, early.ahead(facts), note)


def _measured(
    wish: Wish, facts: Facts, planned: Sequence[planning.Planned], ahead: Ahead, note: Callable[[str], None]
) -> tuple[dict[str, Any], Path]:
    clean = cleaner(facts, wish.serve_args, wish.env)
    first = next((item.resolved for item in planned if not item.reason), None)
    if first is None:
        raise InputError(planned[0].reason or "no mode was asked for", "the arguments come from --serve-args")
    batches = _checked_sizes(wish, first)
    path = _path(wish, facts.gpu, facts.model)
    document = documents.opened(path, _head(wish, facts, clean))
    measuring = Measuring(
        wish.model, wish.engine_python, engine_environment(os.environ, wish.env), batches, wish.context, wish.steps,
        planning.prefill_lengths(first["max_num_batched_tokens"], first["max_model_len"]),
        FOLDER / path.stem , clean.text,
    )  # fmt: skip
    ahead.only(_following(planned, document, batches))
    for index, item in enumerate(planned):
        following = _following(planned[index + 1 :], document, batches)
        _one(item, measuring, wish, facts, document, path, note, ahead, following)
    documents.save(path, document)  # sentences of this release, also where nothing was measured anew
    _check_any(planned, document)
    return document, path


def _path(wish: Wish, gpu: GpuFacts, model: ModelFacts) -> Path:
    return wish.output or FOLDER / f"anatomy-{gpu.slug}-{file_name(model_name(model))}.json"


def _ahead(wish: Wish, gpu: GpuFacts, model: ModelFacts) -> Ahead:
    environment, logs = engine_environment(os.environ, wish.env), FOLDER / _path(wish, gpu, model).stem
    return Ahead(lambda name: process(name, wish.engine_python, environment, logs), gpu.kind != "cpu")


def _one(
    item: planning.Planned, measuring: Measuring, wish: Wish, facts: Facts,
    document: dict[str, Any], path: Path, note: Callable[[str], None], ahead: Ahead, following: str | None,
) -> None:  # fmt: skip
    """Measure a mode, or say why not; the file holds it when this returns. `following`: the mode that is measured next."""
    name = item.mode.name
    if item.reason:
        resolved = dict(item.resolved)
        kept = {key: resolved.get(key) for key in ("compilation_mode", "cudagraph_mode")} if resolved else {}
        document["modes"][name] = {
            "title": item.mode.title, "status": documents.SKIPPED, "reason": measuring.clean(item.reason),
            "same_as": item.same_as, "resolved": kept, "decode": [], "prefill": [],
        }  # fmt: skip
        documents.save(path, document)
        note(f"{item.mode.title}: not run: {item.reason}")
        return
    if documents.is_done(document, name, measuring.batches):
        note(f"{item.mode.title}: in {path} already")
        return
    note(f"{item.mode.title}: starting")
    candidate = Candidate(item.mode.settings)
    argv = serve_arguments(wish.serve_args, candidate, facts.engine.vllm_version)
    machine = {key: document[key] for key in ("bandwidth", "launch") if key in document}
    earlier = document["modes"].get(name, {}).get("status") == documents.MEASURED  # at fewer batch sizes
    for state in measure(Turn(item.mode, argv, following), measuring, machine, ahead):
        if not earlier or state["status"] == documents.MEASURED:
            document["modes"][name] = state
        document |= machine
        document["loaded"] = document.get("loaded") or state["loaded"]
        documents.save(path, document)
    note(f"{item.mode.title}: {state['status']}" + (f": {state['reason']}" if state["reason"] else ""))


def _following(rest: Sequence[planning.Planned], document: Mapping[str, Any], batches: tuple[int, ...]) -> str | None:
    """The first of the rest that an engine will be started for."""
    todo = (item.mode.name for item in rest if not item.reason)
    return next((name for name in todo if not documents.is_done(document, name, batches)), None)


# ---------------------------------------------------------------- before anything is measured


def _inspected(wish: Wish, first_known: Callable[[FirstFacts], None]) -> Facts:
    facts = inspected(wish.model, wish.gpu, wish.engine_python, wish.serve_args, wish.env, first_known)
    planning.check_not_fixed(wish.serve_args, wish.env, facts.engine.vllm_version)
    return facts


def _plan(wish: Wish, facts: Facts, resolution: Resolution) -> list[planning.Planned]:
    version = facts.engine.vllm_version
    answers = {
        mode.name: resolution.resolve(serve_arguments(wish.serve_args, Candidate(mode.settings), version), {})
        for mode in wish.modes
    }
    return planning.plan(wish.modes, answers)


def _checked_sizes(wish: Wish, resolved: Mapping[str, Any]) -> tuple[int, ...]:
    if (ranks := resolved["tensor_parallel_size"]) > 1:
        raise InputError(f"--tensor-parallel-size {ranks}: one GPU is looked at", "leave it out of --serve-args")
    planning.check_context(wish.context, wish.steps + Measuring.around(wish.steps), resolved["max_model_len"])
    return planning.batch_sizes(wish.batch_sizes, resolved["max_num_seqs"])


def _head(wish: Wish, facts: Facts, clean: Scrubber) -> dict[str, Any]:
    found = head(facts, wish.serve_args, wish.env, wish.command, clean)
    return {**found, "context": wish.context, "steps": wish.steps}


def _check_any(planned: Sequence[planning.Planned], document: Mapping[str, Any]) -> None:
    """Raises AdvisorError where every mode that was run failed."""
    states = [document["modes"][item.mode.name] for item in planned if not item.reason]
    if not any(row["step_ms"] is not None for state in states for row in state["decode"]):
        with contextlib.suppress(IndexError):
            raise AdvisorError(
                f"no mode could be measured; the last one: {states[-1]['reason']}", states[-1].get("log")
            )
