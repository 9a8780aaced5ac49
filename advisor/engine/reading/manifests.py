"""A vLLM config file or a Kubernetes manifest -> the same ReadCommand as a command line. Pure: text in, values out.

In Kubernetes there is no shell between `args` and vLLM, so quotes that a shell would take off stay in the value; and an `args`
entry with a space in it is one argument. `$(NAME)` is replaced from the container's own variables, as the kubelet does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import yaml

from advisor.engine.reading.command_line import ReadCommand, read_pasted
from advisor.engine.reading.pasted import SHELLS, dated_image, image_version, references_in, unwrap
from advisor.engine.reading.pasted_words import IMAGE, SERVE, Pasted, Word
from advisor.errors import InputError
from advisor.records import Finding

Version = tuple[int, ...]

_QUOTED_PART = re.compile(r"(^|=)(['\"]).*\2$", re.DOTALL)
_CONTAINER_KEYS = ("containers", "initContainers")


@dataclass(frozen=True)
class Container:
    """One container of a manifest: its name and what it runs."""

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    unknown_env: tuple[str, ...] = ()

    @property
    def serves_vllm(self) -> bool:
        return "vllm" in " ".join((self.image, *self.command, *self.args))


# ---------------------------------------------------------------- vLLM's own config file


def read_config_file(data: Any, version: Version, path: str = "config.yaml") -> ReadCommand:
    """What `vllm serve --config PATH` makes of a file, given as parsed YAML, when nothing else is on the command line."""
    words = (Word("--config", 1), Word(path, 2))
    read = read_pasted(Pasted(words, SERVE), version, {path: data})
    if read.model is None:
        message = "the file names no model, and vLLM asks for one on the command line then"
        read = replace(read, findings=(*read.findings, Finding("info", "model-not-given", message, "model: NAME")))
    return read


def parse_yaml(text: str, what: str) -> list[Any]:
    """The documents of a YAML text. Raises InputError with the line where it is not YAML."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return [document for document in yaml.load_all(text, Loader=loader) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{what}{place}: not valid YAML: {getattr(error, 'problem', None) or error}") from None


# ---------------------------------------------------------------- Kubernetes


def containers(documents: Sequence[Any]) -> list[Container]:
    """All containers of a manifest's documents, whatever kind of object holds them."""
    return [_container(found) for document in documents for found in _find(document)]


def vllm_container(documents: Sequence[Any], name: str | None = None) -> Container:
    """The container that serves vLLM. Raises InputError where there is none, or more than one and no name tells which."""
    found = containers(documents)
    serving = [one for one in found if one.name == name] if name else [one for one in found if one.serves_vllm]
    if len(serving) == 1:
        return serving[0]
    names = ", ".join(one.name for one in (serving or found)) or "none"
    if not serving:
        wanted = f"is called {name}" if name else "runs vLLM"
        raise InputError(f"no container of the manifest {wanted}; it has: {names}")
    raise InputError(f"{len(serving)} containers of the manifest run vLLM: {names}", "name one with --container NAME")


def read_container(
    container: Container, version: Version, config_files: Mapping[str, Any] | None = None
) -> ReadCommand:
    """What the container's vLLM makes of its command, args and environment."""
    return read_pasted(pasted_container(container), version, config_files)


def pasted_container(container: Container) -> Pasted:
    """The container's words, read as they are meant: with shell quotes taken off, and `$NAME` put in, where that is a finding."""
    findings: list[Finding] = []
    words = [_without_quotes(word, place, findings) for place, word in _placed(container)]
    if not any(PurePosixPath(word).name in SHELLS for word in words):
        places = [place for place, _ in _placed(container)]
        words = [_with_brackets(word, place, container.env, findings) for word, place in zip(words, places, strict=True)]
    if container.command or (words and words[0] in ("vllm", "python", "python3", "sh", "bash", "/bin/sh", "/bin/bash")):
        inner = unwrap(words, container.env)
    else:
        placed = tuple(Word(text, position) for position, text in enumerate(words, start=1))
        inner = Pasted(placed, IMAGE, references=tuple(references_in(words)))
    findings += [_unknown_variable(name) for name in container.unknown_env if name.startswith("VLLM_")]
    findings += dated_image(container.image)
    env = {**container.env, **inner.env}
    version = image_version(container.image) or inner.version
    return replace(inner, env=env, version=version, findings=(*inner.findings, *findings))


def _unknown_variable(name: str) -> Finding:
    message = f"the value of {name} comes from another object of the cluster and is not known here"
    return Finding("info", "env-value-not-known", message)


def _placed(container: Container) -> Iterator[tuple[str, str]]:
    for key, words in (("command", container.command), ("args", container.args)):
        for index, word in enumerate(words):
            yield f"{key}[{index}]", _expanded(word, container.env)


def _expanded(word: str, env: Mapping[str, str]) -> str:
    return re.sub(r"\$\(([A-Za-z_]\w*)\)", lambda found: env.get(found[1], found[0]), word)


def _without_quotes(word: str, place: str, findings: list[Finding]) -> str:
    """`--cc='{...}'` with the quotes in the argument itself: vLLM gets them. A text for `sh -c` has a right to its quotes."""
    if not _QUOTED_PART.search(word) or re.match(r"\s*(exec\s+)?(vllm|python3?)\s", word):
        return word
    name, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return word
    bare = name + equals + value[1:-1]
    message = f"{place} holds shell quotes, and without a shell they are part of the value: {word}"
    findings.append(Finding("error", "quotes-inside-argument", message, bare))
    return bare


def _with_brackets(word: str, place: str, env: Mapping[str, str], findings: list[Finding]) -> str:
    """`$NAME` of a variable that the container has: only `$(NAME)` is put in where no shell runs."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in env:
            return found[0]
        message = f"{place} holds {found[0]}: without a shell only $({name}) is replaced, and vLLM gets the text {found[0]}"
        findings.append(Finding("error", "variable-without-brackets", message, f"$({name})"))
        return env[name]

    return re.sub(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", value, word)


# ---------------------------------------------------------------- the manifest's shape


def _find(node: Any) -> Iterator[Mapping[str, Any]]:
    """Container objects anywhere below: pods, templates, custom resources, and the `model` of a KServe predictor."""
    if isinstance(node, list):
        for item in node:
            yield from _find(item)
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        if key in _CONTAINER_KEYS and isinstance(value, list):
            yield from (item for item in value if isinstance(item, Mapping))
        elif key == "predictor" and isinstance(value, Mapping) and isinstance(value.get("model"), Mapping):
            yield {"name": "model", **value["model"]}
            yield from _find({other: item for other, item in value.items() if other != "model"})
        else:
            yield from _find(value)


def _container(node: Mapping[str, Any]) -> Container:
    env: dict[str, str] = {}
    unknown: list[str] = []
    for item in node.get("env") or []:
        if isinstance(item, Mapping) and "name" in item:
            if item.get("value") is not None:
                env[str(item["name"])] = _expanded(str(item["value"]), env)
            elif "valueFrom" in item:
                unknown.append(str(item["name"]))
    name = str(node.get("name", "unnamed"))
    return Container(
        name=name,
        image=str(node.get("image", "")),
        command=_strings(node.get("command"), name, "command"),
        args=_strings(node.get("args"), name, "args"),
        env=env,
        unknown_env=tuple(unknown),
    )


def _strings(value: Any, name: str, key: str) -> tuple[str, ...]:
    """Kubernetes takes a list of strings here and nothing else."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError(
            f"container {name}: {key} is no list", f"{key}: one argument a line, each with a dash in front"
        )
    for index, item in enumerate(value):
        if not isinstance(item, str):
            problem = f"container {name}: {key}[{index}] is {item!r}, and Kubernetes takes only text"
            raise InputError(problem, f'write it as "{item}"')
    return tuple(value)
