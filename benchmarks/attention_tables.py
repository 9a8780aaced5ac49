"""What docs/evidence/attention.md says of a file that `advisor attention` wrote: a table a phase, sentences, the heat map."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.attention.document import read
from advisor.attention.grid import MIXED, PHASES
from advisor.attention.plot import write_heat_map
from advisor.attention.table import gpu_lines, missing, phase_lines
from benchmarks.markdown import command, conditions, markdown, paragraph


def attention(path: Path) -> str:
    """Machine, versions, date and command; the steps of each phase, each backend beside vLLM's own choice; sentences."""
    document = read(path)
    details = f"medians of {document['steps']} decode steps, of half as many mixed and a quarter as many prefill steps."
    parts = [
        conditions(document, path.name, details),
        "\n".join(map(command, document["commands"])),
        f"![Who wins which phase, batch size and context]({path.stem}.svg)",
        *(made(document, phase) for phase in PHASES for made in (_phase, _gpu)),
        "\n".join(paragraph(text, "- ") for text in document["words"]),
        "\n".join(paragraph(text, "- ") for text in missing(document)),
    ]
    return "\n\n".join(part for part in parts if part)


def _phase(document: Mapping[str, Any], phase: str) -> str:
    header, lines = phase_lines(document, phase)
    if not lines:
        return ""
    prompt = f", in it a prompt of {document['chunk']} tokens" if phase == MIXED else ""
    title = (
        f"{phase.capitalize()}, milliseconds a step{prompt}, and how much longer it takes than {document['default']}'s:"
    )
    return f"{title}\n\n{markdown(header, lines)}"


def _gpu(document: Mapping[str, Any], phase: str) -> str:
    """Nothing where no step of the phase was traced."""
    header, lines = gpu_lines(document, phase)
    return f"GPU time of a {phase} step, milliseconds:\n\n{markdown(header, lines)}" if lines else ""


def headline(path: Path) -> str:
    document = read(path)
    return f"{document['gpu']['name']}, {document['date'][:10]}: attention by phase, {document['model']['name']}"


def plot(path: Path) -> None:
    """The heat map beside the file."""
    write_heat_map(read(path), path.with_suffix(".svg"))
