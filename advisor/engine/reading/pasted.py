"""What people paste, down to the words that vLLM's own parser gets: environment, container and shell words are taken off.

Understood: `NAME=value` in front, sudo and other wrappers (`numactl -N 0 vllm ...`, with what is passed over said), `docker run
... IMAGE:TAG ARGS` (the tag names the version), `python -m vllm.entrypoints.openai.api_server`, `sh -c "..."`, and a whole
command or script as one string (shell_text.py). Where no vLLM command is found, an InputError names the word and its position;
nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from advisor.engine.reading.pasted_words import API_SERVER, IMAGE, SERVE, Pasted, Word
from advisor.engine.reading.shell_text import Script, read_script
from advisor.engine.reading.shell_variables import ASSIGNMENT
from advisor.errors import InputError
from advisor.records import Finding

_TAG = re.compile(r":v?(\d+\.\d+(?:\.\d+)?[A-Za-z0-9.]*)(?:[-_].*)?$")
_DATE = re.compile(r"2\d\.(0[1-9]|1[0-2])(\.|$)")
IMAGE_VERSION_NOT_KNOWN = "image-version-not-known"
_WRAPPERS = ("sudo", "exec", "nohup", "env", "time", "uv", "uvx", "poetry", "run", "command", "nice", "stdbuf", "$")
_CONTAINERS = ("docker", "podman", "nerdctl")
_DOCKER_SWITCHES = {
    "--rm", "--privileged", "--init", "--interactive", "--tty", "--detach", "--publish-all", "--read-only", "--no-healthcheck",
    "--oom-kill-disable", "--disable-content-trust", "--quiet", "--sig-proxy", "--replace", "--tls-verify",
}  # fmt: skip
SHELLS = ("sh", "bash", "zsh", "dash")
_API_MODULE = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = ("vllm.entrypoints.cli.main", "vllm")
_SAY_ONLY = ("echo", "printf", "pip", "pip3", "which", "command", "type", "pkill", "pgrep", "grep", "cat", "alias")
_REFERENCE = re.compile(r"\$\w+|\$\{[^}]+\}|\$\(\w+\)")


def unwrap(given: Sequence[str], env: Mapping[str, str] | None = None) -> Pasted:
    """Everything around vLLM's own arguments taken off. Raises InputError where there is no vLLM command.

    One text with blanks in it is read as a shell would read it; `env` is the environment that it is started in.
    """
    if len(given) == 1 and re.search(r"\s", given[0].strip()):
        return unwrap_text(given[0], dict(env or {}))
    texts = [text for text in given if text.strip("\\\r\n\t ") or text == ""]
    words = [Word(text, position) for position, text in enumerate(texts, start=1)]
    found = _command(words, dict(env or {}))
    return replace(found, references=(*found.references, *references_in(texts)))


def references_in(texts: Sequence[str]) -> list[str]:
    """Of words that no shell takes apart any more: what looks like a variable."""
    return list(dict.fromkeys(found for text in texts for found in _REFERENCE.findall(text)))


def unwrap_text(text: str, env: Mapping[str, str] | None = None, position: int | None = None) -> Pasted:
    """The same of a text for a shell. `position`: where it stands, if it is one word of a longer command."""
    script = read_script(text, _serves, env)
    words = [Word(word, position or place) for place, word in enumerate(script.words, start=1)]
    return _with_script(_command(words, dict(script.env)), script)


def _with_script(found: Pasted, script: Script) -> Pasted:
    references = dict.fromkeys((*script.references, *found.references))
    quoted = found.quoted | {name for name, quoted in script.references.items() if quoted}
    return replace(found, findings=(*script.findings, *found.findings), references=tuple(references), quoted=quoted)


def _serves(texts: list[str]) -> bool:
    """Whether the words of a command start a vLLM server."""
    try:
        _command([Word(text, place) for place, text in enumerate(texts, start=1)], {})
    except InputError:
        return False
    return True


# ---------------------------------------------------------------- around vLLM


def _command(words: list[Word], env: dict[str, str]) -> Pasted:
    """Take off what stands before vLLM's arguments, one thing after another."""
    passed: list[str] = []
    for at, word in enumerate(words):
        pair = ASSIGNMENT.fullmatch(word.text)
        if pair and not word.text.startswith("-"):
            env[pair[1]] = pair[2]
            continue
        if (found := _start(words, at, env, bool(passed))) is not None:
            return replace(found, findings=(*found.findings, *_passed_over(passed)))
        if (not passed and PurePosixPath(word.text).name in _WRAPPERS) or (word.text == "export" and at == 0):
            continue
        if not passed:
            _check_followed(words, at)
        passed.append(word.text)
    raise InputError(
        "there is no vLLM command in what was given", "give it after --: advisor explain -- vllm serve MODEL ..."
    )


def _start(words: list[Word], at: int, env: dict[str, str], passed: bool) -> Pasted | None:
    """What is run from this word on, if it is vLLM or what runs it; `passed`: other words stand before it."""
    name = PurePosixPath(words[at].text).name
    if name in _CONTAINERS and not (passed and not _runs_image(words, at)):
        return _container(words[at + 1 :], env)
    if name in SHELLS and not (passed and not any(word.text.endswith("c") for word in words[at + 1 :])):
        return _shell(words[at + 1 :], env)
    if name == "eval":
        return unwrap_text(" ".join(word.text for word in words[at + 1 :]), env, words[at].position)
    if passed and not _starts_vllm(words, at):
        return None
    entry = _entry(words, at)
    return Pasted(tuple(words[at + entry[1] :]), entry[0], env) if entry else None


def _check_followed(words: list[Word], at: int) -> None:
    """Words that are not known may stand in front of a vLLM command, but not in place of one."""
    word = words[at]
    behind = range(at + 1, len(words))
    if PurePosixPath(word.text).name in _SAY_ONLY or not any(_starts_vllm(words, place) for place in behind):
        raise InputError(
            f"{word.text!r} at word {word.position} is not the start of a vLLM command",
            "give `vllm serve MODEL ...`, `python -m vllm.entrypoints.openai.api_server ...` or `docker run IMAGE ...`",
        )


def _starts_vllm(words: list[Word], at: int) -> bool:
    """Whether a command that serves vLLM, or runs something in which it is, can only be meant here."""
    text, after = words[at].text, [word.text for word in words[at + 1 :]]
    name = PurePosixPath(text).name
    if name == "vllm":
        return after[:1] == ["serve"]
    if name in SHELLS:
        return any("vllm" in word for word in after)
    if text == "-m":
        return after[:1] == [_API_MODULE]
    if re.fullmatch(r"python[\d.]*", name):
        return any(word == _API_MODULE or word in _CLI_MODULES or word.endswith("openai/api_server.py") for word in after)
    return text.endswith("openai/api_server.py") or _runs_image(words, at)


def _runs_image(words: list[Word], at: int) -> bool:
    after = [word.text for word in words[at + 1 :]]
    return PurePosixPath(words[at].text).name in _CONTAINERS and after[:1] == ["run"] and any("vllm" in text for text in after)


def _passed_over(passed: list[str]) -> list[Finding]:
    if not passed:
        return []
    message = f"{' '.join(passed)!r} in front of vLLM is passed over"
    return [Finding("info", "words-passed-over", message)]


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
    if texts[:2] == ["-m", _API_MODULE]:  # behind a Python that a variable names
        return API_SERVER, 2
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
    return unwrap_text(words[at + 1].text, env, words[at + 1].position)


def _container(words: list[Word], env: dict[str, str]) -> Pasted:
    """`run [options] IMAGE [arguments]`: variables from -e, the version from the tag, then what the image runs."""
    if not words or words[0].text not in ("run", "exec", "create"):
        raise InputError(f"expected `docker run` at word {words[0].position if words else 2}")
    findings = _outside(env)
    outside, env = env, {}
    entrypoint: list[Word] = []
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        name, equals, value = words[at].text.partition("=")
        switch = name in _DOCKER_SWITCHES or re.fullmatch(r"-[ditPq]+", name)
        if not switch and not equals:
            at += 1
            value = words[at].text if at < len(words) else ""
        if name in ("-e", "--env"):
            findings += _container_variable(value, env, outside)
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
    findings = [one for one in findings if one.code != "env-not-in-container" or one.message.partition("=")[0] not in inner.env]
    findings += dated_image(image.text)
    return replace(inner, version=image_version(image.text) or inner.version, findings=(*inner.findings, *findings))


def _outside(env: Mapping[str, str]) -> list[Finding]:
    """A container does not see the variables of the shell that starts it."""
    return [
        Finding("warning", "env-not-in-container", f"{name}={value} is set outside of the container", f"-e {name}={value}")
        for name, value in env.items()
        if name.startswith("VLLM_")
    ]


def _container_variable(text: str, env: dict[str, str], outside: Mapping[str, str]) -> list[Finding]:
    pair = ASSIGNMENT.fullmatch(text)
    if pair:
        env[pair[1]] = pair[2]
        return []
    if text in outside:
        env[text] = outside[text]
        return []
    message = f"the value of {text} comes from the machine that runs docker and is not known here"
    return [Finding("info", "env-value-not-known", message)] if text.startswith("VLLM_") else []


def _in_image(image: Word, words: list[Word], env: dict[str, str], own_entry: bool) -> Pasted:
    """vLLM's own images take arguments of the server; others, and images with another entry point, take a whole command."""
    names = [PurePosixPath(word.text).name for word in words[:2]]
    calls = bool(names) and (names[0] in (*SHELLS, "vllm", "serve") or re.fullmatch(r"python[\d.]*", names[0]))
    if own_entry or calls:
        return _command(words, env)
    if "vllm" not in image.text:
        raise InputError(
            f"image {image.text!r} at word {image.position}: what it runs is not known", "give the vLLM command itself"
        )
    return Pasted(tuple(words), IMAGE, env)


def image_version(image: str) -> str | None:
    """`vllm/vllm-openai:v0.11.0` -> "0.11.0"; None for `latest`, a date, a digest or an image that is not vLLM's."""
    name = image.split("@")[0]
    found = _TAG.search(name)
    return found[1] if found and "vllm" in name and not _DATE.match(found[1]) else None


def dated_image(image: str) -> tuple[Finding, ...]:
    """NVIDIA's images are called by year and month (`nvcr.io/nvidia/vllm:25.09-py3`): that names no vLLM."""
    name = image.split("@")[0]
    found = _TAG.search(name)
    if not found or "vllm" not in name or not _DATE.match(found[1]):
        return ()
    message = f"{found[1]} of the image {name} is a date: which vLLM is in it is not known here"
    return (Finding("info", IMAGE_VERSION_NOT_KNOWN, message, "--vllm-version with what `vllm --version` says in the image"),)
