"""A spelled decision as the files that serve it: vLLM's own YAML configuration and a Kubernetes container. Pure: text out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from advisor.engine.options import ServeOptions
from advisor.engine.versions import version_text
from advisor.engine.writing.spelling import Spelling
from advisor.engine.writing.spelling_table import Version
from advisor.errors import InputError

_LISTS = (0, 10, 2)  # the first release read whose reader takes lists
_MAPS = (0, 16, 0)  # the first one that takes maps


def vllm_config_yaml(model: str | None, options: ServeOptions, version: Version) -> str:
    """Text of a file for `vllm serve --config FILE` (two words: with `=` the file is not read). Variables are not part of it.

    A switch that is off is `no-x: true`, because the readers up to 0.27 drop `x: false`. Raises InputError for a list where the
    version's reader takes none.
    """
    body: dict[str, Any] = {"model": model} if model else {}
    for name, value in options.values.items():
        key, written = _yaml_entry(name, value, version)
        body[key] = written
    return yaml.safe_dump(body, sort_keys=False, width=float("inf"), allow_unicode=True)


def _yaml_entry(name: str, value: Any, version: Version) -> tuple[str, Any]:
    if not name.startswith("--"):
        raise InputError(f"{name} cannot stand in a configuration file", "write its long form")
    key = name.removeprefix("--")
    if value is False:
        return f"no-{key}", True
    if isinstance(value, Mapping):
        return key, dict(value) if version >= _MAPS else json.dumps(value, separators=(",", ":"))
    if isinstance(value, list | tuple):
        if len(value) != 1 and version < _LISTS:
            raise InputError(
                f"vLLM {version_text(version)} reads no lists from a configuration file: {name}",
                f"give it on the command line; files with lists need {version_text(_LISTS)} or newer",
            )
        return key, [_number(item) for item in value] if version >= _LISTS else _number(value[0])
    return key, _number(value)


def _number(value: Any) -> Any:
    """Numbers in their usual spelling without quotes; `0.90` and `1e5` stay words, so that nothing is lost."""
    for kind in (int, float):
        try:
            number = kind(value)
        except (TypeError, ValueError):
            continue
        if isinstance(value, str) and str(number) == value and value not in ("inf", "-inf", "nan"):
            return number
    return value


def kubernetes_args(model: str, spelling: Spelling) -> list[str]:
    """`args:` of a container whose `command:` is `vllm serve`: one word an entry, without shell quotes, which no shell removes."""
    return [model, *spelling.argv()]


def kubernetes_container(model: str, spelling: Spelling) -> dict[str, Any]:
    """The part of a container that says how to serve. `command` is given because the images' own entry point changed."""
    container: dict[str, Any] = {"command": ["vllm", "serve"], "args": kubernetes_args(model, spelling)}
    if spelling.env:
        container["env"] = [{"name": name, "value": str(value)} for name, value in spelling.env.items()]
    return container


def kubernetes_yaml(model: str, spelling: Spelling) -> str:
    """The same as YAML text."""
    return yaml.safe_dump(
        kubernetes_container(model, spelling), sort_keys=False, width=float("inf"), allow_unicode=True
    )
