"""What the installed vLLM makes of many candidates, asked in one process that begins to import vLLM as soon as it is entered."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.target_process import TargetProcess, scrubbed_environment

FIRST_ANSWER_S = 300.0  # imports of vLLM on a slow disk; later answers take milliseconds


class Resolution:
    """Context manager over advisor/target/resolve.py in the target interpreter."""

    def __init__(self, python: str, model: str, serve_env: Mapping[str, str]):
        self._model = model
        self._process = TargetProcess(python, "resolve", scrubbed_environment(os.environ, serve_env))

    def __enter__(self) -> Resolution:
        self._process.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; it holds a gigabyte that the first server may need. May be called more than once."""
        self._process.close()

    def resolve(self, arguments: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
        """`{"ok": True, "resolved": {...}}` or `{"ok": False, "error": "..."}` for the arguments after the model."""
        return self._process.request({"argv": [self._model, *arguments], "env": dict(env)}, FIRST_ANSWER_S)
