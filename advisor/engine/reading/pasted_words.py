"""What is left of a pasted text: the words for vLLM's parser, where each came from, and what could not be known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.records import Finding

SERVE, API_SERVER, IMAGE = "serve", "api_server", "image"
FLAG, CONFIG_FILE = "flag", "config-file"


@dataclass(frozen=True)
class Word:
    """One argument: its text, its position in what was given (from 1), and whether the person or a config file said it."""

    text: str
    position: int
    origin: str = FLAG

    @property
    def place(self) -> str:
        return f"word {self.position}" if self.origin == FLAG else "the config file"


@dataclass(frozen=True)
class Pasted:
    """`words` are what follows `vllm serve`. `version` is what an image tag says, as text.

    `references` are the shell variables in words and environment that nothing gives a value to, as they are written.
    """

    words: tuple[Word, ...]
    entry: str = SERVE
    env: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    findings: tuple[Finding, ...] = ()
    references: tuple[str, ...] = ()
    quoted: frozenset[str] = frozenset()  # those that stand in double quotes


def mentions(value: Any, references: Sequence[str]) -> bool:
    """Whether a value, or anything in it, holds one of the variables."""
    if isinstance(value, str):
        return any(reference in value for reference in references)
    if isinstance(value, Mapping):
        return any(mentions(item, references) for item in value.values())
    return isinstance(value, list | tuple) and any(mentions(item, references) for item in value)
