"""Under which conditions an engine is stepped: model, machine, versions, arguments, as a document tells them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.engine.options import parse_options
from advisor.engine.render import check_version
from advisor.errors import InputError
from advisor.inspection.inspect_all import inspect_all
from advisor.journal import now
from advisor.records import Facts, FirstFacts
from advisor.serving_profile.scrub import Scrubber, model_name, scrubber


def inspected(
    model: str, gpu: str, python: str, serve_args: Sequence[str], env: Mapping[str, str],
    first_known: Callable[[FirstFacts], None] = lambda _facts: None,
) -> Facts:  # fmt: skip
    """Raises InputError and EnvironmentMismatch as inspect_all does, and for a model folder without weights to load."""
    facts = inspect_all(model, gpu, python, serve_args, env, first_known)
    check_version(facts.engine.vllm_version)
    if not facts.model.has_weights and not random_weights(serve_args):
        raise InputError(
            f"model folder {facts.model.model} holds no weights",
            'serve random ones: --serve-args "--load-format dummy"',
        )
    return facts


def random_weights(serve_args: Sequence[str]) -> bool:
    return parse_options(serve_args).values.get("--load-format") == "dummy"


def cleaner(facts: Facts, serve_args: Sequence[str], env: Mapping[str, str]) -> Scrubber:
    """Takes secrets and this machine's paths out of what goes into a document."""
    return scrubber((facts.model.model, model_name(facts.model)), [env], [serve_args])


def head(
    facts: Facts, serve_args: Sequence[str], env: Mapping[str, str], command: str, clean: Scrubber
) -> dict[str, Any]:
    """The beginning of a document, without secrets and paths."""
    gpu, engine, model = facts.gpu, facts.engine, facts.model
    return {
        "date": now(),
        "command": clean.text(command),
        "gpu": {"name": gpu.name, "slug": gpu.slug, "memory_gib": gpu.memory_gib, "driver": gpu.driver},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": {
            "vllm": engine.vllm_version, "torch": engine.torch_version, "cuda": engine.cuda_version,
            "flashinfer": engine.flashinfer_version, "python": engine.python_version, "platform": engine.platform,
        },
        "model": {
            "name": model_name(model), "architecture": model.architecture, "config": model.config_hash,
            "quantization": model.quantization, "random_weights": random_weights(serve_args),
        },
        "serve_args": clean.words(serve_args),
        "env": clean.env(env),
    }  # fmt: skip
