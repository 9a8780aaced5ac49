"""Inspect: what is here, cheapest question first. GPU, model folder, then the target interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from advisor.inspection.engine import describe
from advisor.inspection.gpu import check_requested, detect
from advisor.inspection.model import is_local, local_model
from advisor.records import Facts, FirstFacts


def inspect_all(
    model: str,
    gpu: str = "auto",
    python: str | None = None,
    serve_args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    first_known: Callable[[FirstFacts], None] = lambda _facts: None,
) -> Facts:
    """Facts of GPU, engine and model for `--model MODEL --gpu GPU`.

    `python` is the target interpreter (this one where None), `env` what the person adds to the server's environment. `first_known`
    is told of GPU and model before vLLM is asked, which takes its imports: what needs no more can begin meanwhile.
    Raises InputError for what is wrong in itself and EnvironmentMismatch for what does not suit this machine.
    """
    added = dict(env or {})
    if is_local(model):
        local_model(model)  # a mistyped path is told before anything is asked of the machine
    gpu_facts = check_requested(gpu, detect({**os.environ, **added}))
    engine_facts, model_facts = describe(python or sys.executable, model, serve_args, gpu_facts, added, first_known)
    return Facts(gpu_facts, engine_facts, model_facts)
