"""Secrets out of what is written into a launch's folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
_SECRET = re.compile(r"(token|secret|password|passwd|api[-_]?key|credential)s?$", re.IGNORECASE)
_AMOUNTS = re.compile(r"tokens?$|vocab|parser|tokenizer", re.IGNORECASE)  # --max-num-batched-tokens is no secret
_TOKEN_OPTIONS = ("--hf-token", "--api-key", "--token")


def redact_argv(argv: Iterable[str]) -> list[str]:
    """The argument list with the values of options that carry a secret hidden."""
    shown: list[str] = []
    for word in argv:
        previous = shown[-1] if shown else ""
        name, equals, _ = word.partition("=")
        if previous.startswith("--") and _is_secret_option(previous):
            shown.append(HIDDEN)
        elif equals and _is_secret_option(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(word)
    return shown


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables with the values of those that carry a secret hidden."""
    return {name: HIDDEN if _SECRET.search(name) else value for name, value in env.items()}


def _is_secret_option(name: str) -> bool:
    return name in _TOKEN_OPTIONS or (
        name.startswith("--") and bool(_SECRET.search(name)) and not _AMOUNTS.search(name)
    )
