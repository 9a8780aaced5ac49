"""Keeps secrets and this machine's paths out of a profile, which goes into git.

Secrets are known by the name of the variable or option that holds them. Their value becomes `${NAME}` there and
wherever else it shows up. The model's folder becomes its name everywhere. In free text (log lines) any other absolute
path becomes its last part; in the person's own options and variables a path stays: the command would not run without.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from advisor.records import ModelFacts
from advisor.serving_profile.args import groups

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD", re.IGNORECASE)
_SECRET_ENDINGS = ("key", "token", "secret", "password", "passwd")
# A shorter value may be an ordinary word: replacing it all over the text would garble the rest.
_SHORTEST_REPLACED = 6
_PATH = re.compile(r"(?<![\w.:/$}])/(?:[\w.+@~-]+/)+[\w.+@~-]*")


def secret_variable(name: str, value: str) -> bool:
    """`HF_TOKEN`, `VLLM_API_KEY`; not `TOKENIZERS_PARALLELISM`, and not a count such as `X_MAX_TOKENS=4096`."""
    name = re.sub("TOKENIZER", "", name, flags=re.IGNORECASE)
    if value.isdigit():
        name = re.sub("TOKENS", "", name, flags=re.IGNORECASE)
    return _SECRET.search(name) is not None


def secret_option(name: str) -> bool:
    """`--api-key`, `hf_token`; not `--long-prefill-token-threshold` or `num_speculative_tokens`."""
    return re.split(r"[-_.]", name.lower())[-1] in _SECRET_ENDINGS


def reference(name: str) -> str:
    """`--api-key` -> `${API_KEY}`."""
    return "${" + re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") + "}"


@dataclass(frozen=True)
class Scrubber:
    """`secrets`: value -> reference. `model`: the model as the person gave it, and the name that stands for it."""

    model: tuple[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict)

    def setting(self, text: str) -> str:
        """For words and values that are run: without secrets and without the model's path."""
        for value, name in sorted(self.secrets.items(), key=lambda item: (-len(item[0]), item[0])):
            if len(value) >= _SHORTEST_REPLACED:
                text = text.replace(value, name)
        path, name = self.model[0].rstrip("/"), self.model[1]
        return text.replace(path, name) if path != name and len(path) >= _SHORTEST_REPLACED else text

    def text(self, text: str) -> str:
        """For log lines and reasons: one line, without secrets, and of any absolute path only the last part."""
        return _PATH.sub(lambda match: folder_name(match[0]), self.setting(" ".join(text.split())))

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Variables in alphabetical order, those that hold a secret as a reference to themselves."""
        items = sorted(env.items())
        return {name: reference(name) if secret_variable(name, value) else self.setting(value) for name, value in items}

    def words(self, words: Iterable[str]) -> list[str]:
        """Words of a command line, the values of secret options as references."""
        return [self.setting(word) for group in groups(list(words)) for word in _without_secret(group)]


def scrubber(model: tuple[str, str], envs: Iterable[Mapping[str, str]], lines: Iterable[Iterable[str]]) -> Scrubber:
    """A scrubber that knows the secrets in these environments and command lines."""
    secrets: dict[str, str] = {}
    for env in envs:
        secrets |= {value: reference(name) for name, value in env.items() if value and secret_variable(name, value)}
    for words in lines:
        for group in groups(list(words)):
            for name, value in _option_secrets(group):
                secrets.setdefault(value, reference(name))
    return Scrubber(model, secrets)


def is_local_folder(model: ModelFacts) -> bool:
    """Whether the model came from a folder. `models/tiny` could be either: revision and missing weights decide."""
    if model.revision is not None:
        return False
    return model.model.startswith(("/", ".", "~")) or model.model.count("/") > 1 or not model.has_weights


def model_name(model: ModelFacts) -> str:
    """The hub id, or the folder's last part."""
    return folder_name(model.model) if is_local_folder(model) else model.model


def folder_name(path: str) -> str:
    """Last part of a folder's path, `model` where it has none."""
    name = PurePosixPath(path.rstrip("/")).name
    return name if name not in ("", ".", "..", "~") else "model"


def _option_secrets(group: list[str]) -> Iterator[tuple[str, str]]:
    """(option or JSON key, value) for each secret of an option with its values."""
    name, equals, value = group[0].partition("=")
    values = [value] if equals else group[1:]
    for item in values:
        if secret_option(name):
            yield name, item
        else:
            yield from _json_secrets(_object(item))


def _json_secrets(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, str) and item and secret_option(name):
                yield name, item
            else:
                yield from _json_secrets(item)
    elif isinstance(value, list):
        for item in value:
            yield from _json_secrets(item)


def _object(text: str) -> Any:
    try:
        return json.loads(text) if text.startswith(("{", "[")) else None
    except json.JSONDecodeError:
        return None


def _without_secret(group: list[str]) -> list[str]:
    """The group with each secret replaced where it stands, whatever its length."""
    name, equals, _ = group[0].partition("=")
    if secret_option(name):
        return [f"{name}={reference(name)}"] if equals else [name, *(reference(name) for _ in group[1:])]
    return [_without_json_secrets(word) for word in group]


def _without_json_secrets(word: str) -> str:
    value = _object(word)
    if not any(_json_secrets(value)):
        return word  # as it was written
    return json.dumps(_redacted(value), separators=(",", ":"))


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        texts = {name for name, item in value.items() if isinstance(item, str) and item and secret_option(name)}
        return {name: reference(name) if name in texts else _redacted(item) for name, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value
