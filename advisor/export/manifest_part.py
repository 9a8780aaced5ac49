"""The lines of a Kubernetes manifest that a rewritten command replaces: command, args and variables of one container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from advisor.engine.reading.manifests import Container
from advisor.engine.reading.pasted import SHELLS
from advisor.engine.reading.pasted_words import IMAGE
from advisor.serving_profile.args import ServeLine


def manifest_part(container: Container, entry: str, line: ServeLine, text: str) -> str:
    """YAML with the container's name and what changes in it; `line.env` are variables that it does not have yet.

    `text` is the command for a shell, where the container runs one.
    """
    part: dict[str, Any] = {"name": container.name}
    words = (*container.command, *container.args)
    if words and PurePosixPath(words[0]).name in SHELLS:
        part |= {"command": [words[0], "-c"], "args": [f"exec {text}" if not line.env else text]}
    elif entry == IMAGE:  # every release's image takes --model
        part |= {"args": ["--model", line.model, *line.words]}
    else:
        part |= {"command": ["vllm", "serve"], "args": [line.model, *line.words]}
    if line.env and "-c" not in part.get("command", ()):
        part["env"] = [{"name": name, "value": value} for name, value in line.env.items()]
    return yaml.safe_dump(part, sort_keys=False, width=10**6, default_flow_style=False)


def manifest_notes(container: Container, env: Mapping[str, str], version: str) -> list[str]:
    """What is to be done in the manifest beside that."""
    notes = [f"the lines of container {container.name}; everything else of the manifest stays as it is"]
    if container.image:
        notes.append(f"image {container.image}: take one of vLLM {version}")
    gone = [name for name in container.env if name not in env]
    if gone:
        notes.append(f"take out of env: {', '.join(gone)}")
    if any(f"$({name})" in word for word in (*container.command, *container.args) for name in container.env):
        notes.append("$(NAME) is replaced with its value from env")
    return notes
