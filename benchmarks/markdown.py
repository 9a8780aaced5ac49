"""Pieces of Markdown that evidence is written in: tables, wrapped sentences, commands, and the conditions of a measurement."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WIDTH = 130


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def paragraph(text: str, begin: str = "") -> str:
    return textwrap.fill(
        begin + text, WIDTH, subsequent_indent=" " * len(begin), break_long_words=False, break_on_hyphens=False
    )


def command(text: str) -> str:
    """In lines that a shell takes as one, broken before options."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(text)):
        if word.startswith("--") and len(lines[-1]) > WIDTH - 45:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(("        " if number else "    ") + line for number, line in enumerate(lines))


def conditions(document: Mapping[str, Any], name: str, details: str) -> str:
    """Machine, versions, day and model of a document that advisor/stepping/conditions.py began; then `details`, and the file."""
    gpu, versions, model = document["gpu"], document["versions"], document["model"]
    told = {
        "driver": gpu.get("driver"),
        "torch": versions["torch"],
        "CUDA": versions.get("cuda"),
        "FlashInfer": versions.get("flashinfer"),
        "Python": versions["python"],
    }
    others = ", ".join(f"{label} {value}" for label, value in told.items() if value)
    weights = "**random weights**" if model["random_weights"] else "its own weights"
    return paragraph(
        f"{gpu['name']}, {document['cores']} cores, vLLM {versions['vllm']}, {others}, {document['date'][:10]}. "
        f"{model['name']} ({model['architecture']}), {weights}, {details} All figures: [{name}]({name})."
    )
