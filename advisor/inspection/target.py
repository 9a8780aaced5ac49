"""One question to the target interpreter, with errors that tell a person what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from advisor.errors import EnvironmentMismatch
from advisor.target_process import TargetDied, TargetProcess, scrubbed_environment

HINT = "give the Python of the environment that holds vLLM: --engine-python PATH"


def ask(
    python: str,
    script: str,
    request: Mapping[str, Any],
    timeout_s: float = 300.0,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The answer of a script of `advisor/target/` to one request; the script has left when this returns.

    `env` is added to the scrubbed environment. Raises EnvironmentMismatch where the interpreter is missing, cannot be
    executed, is no Python, dies (with the last line of what it said), or is silent for `timeout_s`. An answer with
    `"ok": false` is returned as it is.
    """
    try:
        with TargetProcess(python, script, scrubbed_environment(os.environ, env or {})) as process:
            return process.request(request, timeout_s)
    except TargetDied as died:
        said = "\n".join(died.last_lines)
        raise EnvironmentMismatch(died.problem, f"{HINT}\n{said}".strip()) from died
