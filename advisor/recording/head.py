"""The first line of a grid: the space as the installed vLLM resolves it, and what its launches have in common."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from advisor.engine.agreement import KEPT
from advisor.inspection.resolution import Resolution
from advisor.journal import now
from advisor.progress import Progress
from advisor.recording.grid import Head
from advisor.recording.order import spread
from advisor.recording.space import equal_ones, kept
from advisor.records import Facts, to_json
from advisor.request import TuneRequest
from advisor.serving_profile.scrub import Scrubber, model_name
from advisor.serving_profile.store import file_name
from advisor.space.design import combinations
from advisor.study import setup
from advisor.study.spaces import Spaces


def grid_name(request: TuneRequest, facts: Facts) -> str:
    return file_name(f"{model_name(facts.model)}-{facts.gpu.slug}-{request.workload.name}")


def identity_of(request: TuneRequest, facts: Facts, clean: Scrubber) -> dict[str, Any]:
    """What must be equal for launches to be comparable."""
    space = setup.space_spec(request, facts)
    return {
        "model": model_name(facts.model),
        "config": facts.model.config_hash,
        "gpu": facts.gpu.name,
        "driver": facts.gpu.driver,
        "vllm": facts.engine.vllm_version,
        "torch": facts.engine.torch_version,
        "workload": to_json(request.workload),
        "serve_args": clean.words(request.serve_args),
        "env": clean.env(request.serve_env),
        "space": {name: {"values": setting.values, "when": setting.when} for name, setting in space.settings.items()},
        "samples": request.samples,
        "launcher": request.launcher,
        "slo": ",".join(limit.label for limit in request.objective.slo) or None,
    }


def new_head(
    request: TuneRequest,
    facts: Facts,
    path: Path,
    identity: dict[str, Any],
    clean: Scrubber,
    resolution: Resolution,
    progress: Progress,
) -> Head:
    """Resolves the whole space; a grid that goes on takes the head from its file."""
    space = Spaces(request, facts, request.runs, resolution, progress).of()
    setup.check_not_empty(space)
    order = spread(space.candidates, space.settings)
    looked_at = list(combinations(space.settings)) if space.complete else []
    return Head(
        name=path.stem,
        created_at=now(),
        identity=identity,
        facts=_portable(facts, clean),
        workload=request.workload,
        serve_args=tuple(clean.words(request.serve_args)),
        serve_env=clean.env(request.serve_env),
        random_weights=setup.random_weights(request),
        samples=request.samples,
        settings=space.settings,
        candidates=tuple(order),
        resolved=tuple(kept(space.resolved[item.key], KEPT) for item in order),
        equal=equal_ones(space, looked_at),
    )


def _portable(facts: Facts, clean: Scrubber) -> Facts:
    """Without what names the machine (an error of an import ends with the file's path), and without vLLM's long list of options."""
    engine = facts.engine
    refusals = {version: clean.text(why) for version, why in engine.flash_attention_refusals.items()}
    return Facts(
        dataclasses.replace(facts.gpu, uuids=()),
        dataclasses.replace(engine, python="python3", flags=(), flash_attention_refusals=refusals),
        dataclasses.replace(facts.model, model=model_name(facts.model)),
    )
