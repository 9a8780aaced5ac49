"""What the installed vLLM makes of many candidates, asked in one process that begins to import vLLM as soon as it is entered."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.target_process import TargetProcess, scrubbed_environment

FIRST_ANSWER_S = 300.0  # imports of vLLM on a slow disk; later answers take milliseconds


class Resolution:
    """Context manager over advisor/target/resolve.py in the target interpreter.

    Asked again after `close`, it begins anew: a large space has candidates resolved in the middle of the search.
    """

    def __init__(self, python: str, model: str, serve_env: Mapping[str, str]):
        self._python, self._model, self._serve_env = python, model, dict(serve_env)
        self._process: TargetProcess | None = None

    def __enter__(self) -> Resolution:
        self._begin()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; it holds a gigabyte that the first server may need. May be called more than once."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def resolve(self, arguments: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
        """`{"ok": True, "resolved": {...}}` or `{"ok": False, "error": "..."}` for the arguments after the model."""
        process = self._process or self._begin()
        return process.request({"argv": [self._model, *arguments], "env": dict(env)}, FIRST_ANSWER_S)

    def _begin(self) -> TargetProcess:
        self._process = TargetProcess(self._python, "resolve", scrubbed_environment(os.environ, self._serve_env))
        return self._process.__enter__()
