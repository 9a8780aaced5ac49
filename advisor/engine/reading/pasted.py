"""What people paste, down to the words that vLLM's own parser gets: environment, container and shell words are taken off.

Understood: `NAME=value` in front, `export NAME=value;`, sudo and other wrappers, `docker run ... IMAGE:TAG ARGS` (the tag names
the version), `python -m vllm.entrypoints.openai.api_server`, `sh -c "..."`, backslashes at line ends, and a whole command as one
string. What is not understood is an InputError with the word and its position; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from advisor.engine.reading.shell_text import ASSIGNMENT, command_texts, last_command
from advisor.errors import InputError
from advisor.records import Finding

SERVE, API_SERVER, IMAGE = "serve", "api_server", "image"
FLAG, CONFIG_FILE = "flag", "config-file"

_TAG = re.compile(r":v?(\d+\.\d+(?:\.\d+)?[A-Za-z0-9.]*)(?:[-_].*)?$")
_WRAPPERS = ("sudo", "exec", "nohup", "env", "time", "uv", "uvx", "poetry", "run", "command", "nice", "stdbuf", "$")
_CONTAINERS = ("docker", "podman", "nerdctl")
_DOCKER_SWITCHES = {
    "--rm", "--privileged", "--init", "--interactive", "--tty", "--detach", "--publish-all", "--read-only", "--no-healthcheck",
    "--oom-kill-disable", "--disable-content-trust", "--quiet", "--sig-proxy", "--replace", "--tls-verify",
}  # fmt: skip
_SHELLS = ("sh", "bash", "zsh", "dash")
_API_MODULE = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = ("vllm.entrypoints.cli.main", "vllm")


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
    """`words` are what follows `vllm serve`. `version` is what an image tag says, as text."""

    words: tuple[Word, ...]
    entry: str = SERVE
    env: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    findings: tuple[Finding, ...] = ()


def unwrap(given: Sequence[str]) -> Pasted:
    """Everything around vLLM's own arguments taken off. Raises InputError where there is no vLLM command."""
    texts, exports, cut = command_texts(given)
    words = [Word(text, position) for position, text in enumerate(texts, start=1)]
    found = _command(words, dict(exports))
    if cut:
        message = f"what follows {cut!r} belongs to the shell and is left out"
        found = replace(found, findings=(*found.findings, Finding("info", "shell-words-left-out", message)))
    return found


# ---------------------------------------------------------------- around vLLM


def _command(words: list[Word], env: dict[str, str]) -> Pasted:
    """Take off what stands before vLLM's arguments, one thing after another."""
    at = 0
    while at < len(words):
        word = words[at]
        pair = ASSIGNMENT.fullmatch(word.text)
        name = PurePosixPath(word.text).name
        if pair and not word.text.startswith("-"):
            env[pair[1]] = pair[2]
        elif name in _CONTAINERS:
            return _container(words[at + 1 :], env)
        elif name in _SHELLS:
            return _shell(words[at + 1 :], env)
        elif (entry := _entry(words, at)) is not None:
            kind, length = entry
            return Pasted(tuple(words[at + length :]), kind, env)
        elif name == "export" and at == 0:
            pass
        elif name not in _WRAPPERS:
            raise InputError(
                f"{word.text!r} at word {word.position} is not the start of a vLLM command",
                "give `vllm serve MODEL ...`, `python -m vllm.entrypoints.openai.api_server ...` or `docker run IMAGE ...`",
            )
        at += 1
    raise InputError(
        "there is no vLLM command in what was given", "give it after --: advisor explain -- vllm serve MODEL ..."
    )


def _entry(words: list[Word], at: int) -> tuple[str, int] | None:
    """(kind of entry point, words that it takes) where vLLM is called at this position."""
    texts = [word.text for word in words[at:]]
    name = PurePosixPath(texts[0]).name
    if name == "vllm":
        if texts[1:2] == ["serve"]:
            return SERVE, 2
        shown = repr(texts[1]) if len(texts) > 1 else "nothing"
        raise InputError(f"expected `serve` after `vllm` at word {words[at].position + 1}, found {shown}")
    if name == "serve":
        return SERVE, 1
    if texts[0].endswith("openai/api_server.py"):
        return API_SERVER, 1
    if re.fullmatch(r"python[\d.]*", name):
        return _python(words, at, texts)
    return None


def _python(words: list[Word], at: int, texts: list[str]) -> tuple[str, int]:
    place = 1
    while place < len(texts) and texts[place].startswith("-") and not texts[place].startswith("-m"):
        place += 1
    module = texts[place].removeprefix("-m") or "".join(texts[place + 1 : place + 2]) if place < len(texts) else ""
    after = place + (1 if place < len(texts) and texts[place] != "-m" else 2)
    if module == _API_MODULE or module.endswith("openai/api_server.py"):
        return API_SERVER, after
    if module in _CLI_MODULES and texts[after : after + 1] == ["serve"]:
        return SERVE, after + 1
    shown = module or "nothing"
    raise InputError(f"{texts[0]!r} at word {words[at].position} runs {shown!r}, which is not vLLM's server")


def _shell(words: list[Word], env: dict[str, str]) -> Pasted:
    """`-c "command"`, with options such as `-l` before it."""
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word.text)), None)
    if at is None or at + 1 >= len(words):
        position = words[0].position if words else 1
        problem = f"a shell without -c at word {position} runs nothing that can be read here"
        raise InputError(problem, "give the vLLM command itself")
    texts, exports, _ = last_command(words[at + 1].text)
    position = words[at + 1].position
    return _command([Word(text, position) for text in texts], {**env, **exports})


def _container(words: list[Word], env: dict[str, str]) -> Pasted:
    """`run [options] IMAGE [arguments]`: variables from -e, the version from the tag, then what the image runs."""
    if not words or words[0].text not in ("run", "exec", "create"):
        raise InputError(f"expected `docker run` at word {words[0].position if words else 2}")
    findings: list[Finding] = []
    entrypoint: list[Word] = []
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        name, equals, value = words[at].text.partition("=")
        switch = name in _DOCKER_SWITCHES or re.fullmatch(r"-[ditPq]+", name)
        if not switch and not equals:
            at += 1
            value = words[at].text if at < len(words) else ""
        if name in ("-e", "--env"):
            findings += _container_variable(value, env)
        elif name == "--env-file":
            message = f"the variables in {value} are not read"
            findings.append(
                Finding("warning", "env-file-not-read", message, "give them as NAME=value in front of the command")
            )
        elif name == "--entrypoint":
            entrypoint = [replace(words[min(at, len(words) - 1)], text=part) for part in value.split()]
        at += 1
    if at >= len(words):
        raise InputError("docker run without an image", "give the whole command")
    image, rest = words[at], [*entrypoint, *words[at + 1 :]]
    inner = _in_image(image, rest, env, bool(entrypoint))
    return replace(inner, version=image_version(image.text) or inner.version, findings=(*inner.findings, *findings))


def _container_variable(text: str, env: dict[str, str]) -> list[Finding]:
    pair = ASSIGNMENT.fullmatch(text)
    if pair:
        env[pair[1]] = pair[2]
        return []
    message = f"the value of {text} comes from the machine that runs docker and is not known here"
    return [Finding("info", "env-value-not-known", message)] if text.startswith("VLLM_") else []


def _in_image(image: Word, words: list[Word], env: dict[str, str], own_entry: bool) -> Pasted:
    """vLLM's own images take arguments of the server; others, and images with another entry point, take a whole command."""
    names = [PurePosixPath(word.text).name for word in words[:2]]
    calls = bool(names) and (names[0] in (*_SHELLS, "vllm", "serve") or re.fullmatch(r"python[\d.]*", names[0]))
    if own_entry or calls:
        return _command(words, env)
    if "vllm" not in image.text:
        raise InputError(
            f"image {image.text!r} at word {image.position}: what it runs is not known", "give the vLLM command itself"
        )
    return Pasted(tuple(words), IMAGE, env)


def image_version(image: str) -> str | None:
    """`vllm/vllm-openai:v0.11.0` -> "0.11.0"; None for `latest`, a digest or an image that is not vLLM's."""
    name = image.split("@")[0]
    found = _TAG.search(name)
    return found[1] if found and "vllm" in name else None
