"""The first half of vLLM's own parser: what it makes of the words before argparse sees them.

Underscores become dashes, `-O3` becomes what this version means by it, and dotted keys of one option are gathered into one JSON
value that is put behind all other words, which is why it replaces JSON given for the same option. Read in (and compared with)
`FlexibleArgumentParser.parse_args` of 0.9.0 to 0.33.0; the versions named below are those in which it changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.reading.pasted_words import Word
from advisor.engine.versions import version_text
from advisor.records import Finding

Version = tuple[int, ...]

DOTTED_SHORT_SINCE = (0, 9, 2)  # `-O.key=value`; before, only long options may have a dot, and values stay text
LEVEL_IS_MODE_SINCE = (0, 11, 2)  # `-O3` sets the key `mode` instead of `level`
LEVEL_IS_OPTION_SINCE = (0, 12, 0)  # `-O3` is --optimization-level 3
SHORT_O_DOTTED_GONE = (0, 13, 0)
HUMAN_NUMBERS_SINCE = (0, 20, 2)  # `-cc.max_cudagraph_capture_size=1k`
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Dotted:
    """All dotted keys of one spelling of an option, together: `-cc` and `--compilation-config` stay apart."""

    spelling: str
    value: Mapping[str, Any]
    words: tuple[Word, ...]

    @property
    def shown(self) -> str:
        return ", ".join(word.text for word in self.words)


@dataclass
class Flexible:
    """What argparse gets: plain words in their order, then the dotted options as JSON."""

    words: list[Word] = field(default_factory=list)
    dotted: list[Dotted] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def flexible(words: Iterable[Word], version: Version) -> Flexible:
    """Words as argparse gets them, in this version."""
    found = Flexible()
    dashed = _levels([_dashed(word, version) for word in words], version, found.findings)
    gathered: dict[str, tuple[dict[str, Any], list[Word]]] = {}
    at = 0
    while at < len(dashed):
        word = dashed[at]
        name, equals, text = word.text.partition("=")
        if not _is_dotted(name, version):
            found.words.append(word)
            at += 1
            continue
        if not equals:
            at += 1
            if at == len(dashed):
                message = f"{word.text!r} at {word.place} has no value, and vLLM's parser breaks off"
                found.findings.append(Finding("error", "value-missing", message, f"{word.text}=VALUE"))
                break
            text = dashed[at].text
        spelling, *keys = name.removesuffix("+").split(".")
        value = text.split(",") if name.endswith("+") and version >= DOTTED_SHORT_SINCE else _value(text, version)
        merged, sources = gathered.setdefault(spelling, ({}, []))
        _merge(merged, _nested(keys, value))
        sources.append(word if equals else Word(f"{word.text} {text}", word.position, word.origin))
        at += 1
    found.dotted = [Dotted(spelling, value, tuple(sources)) for spelling, (value, sources) in gathered.items()]
    return found


def _is_dotted(name: str, version: Version) -> bool:
    return "." in name and name.startswith("-" if version >= DOTTED_SHORT_SINCE else "--")


def _dashed(word: Word, version: Version) -> Word:
    """Underscores in the name become dashes; 0.9.0 does so in the keys behind the dot too, which no key survives."""
    if not word.text.startswith("--"):
        return word
    name, equals, value = word.text.partition("=")
    head, dot, keys = name.partition(".")
    tail = keys.replace("_", "-") if version < DOTTED_SHORT_SINCE else keys
    return Word(head.replace("_", "-") + dot + tail + equals + value, word.position, word.origin)


def _levels(words: list[Word], version: Version, findings: list[Finding]) -> list[Word]:
    """`-O3`, `-O 3`, `-O=3` and `-O.key` in what this version means by them."""
    if version < DOTTED_SHORT_SINCE:
        return words
    done: list[Word] = []
    for at, word in enumerate(words):
        following = words[at + 1].text if at + 1 < len(words) else ""
        if word.text.startswith("-O.") and version >= LEVEL_IS_OPTION_SINCE:
            done += _short_o_dotted(word, version, findings)
        elif re.match(r"-O[^.]", word.text):
            done += _level(word, word.text[2:].removeprefix("="), version)
        elif word.text == "-O" and following in ("0", "1", "2", "3"):
            done += _level(word, None, version)
        else:
            done.append(word)
    return done


def _level(word: Word, level: str | None, version: Version) -> list[Word]:
    """The level's words; `level` is None where it is the word that follows anyway."""
    if version >= LEVEL_IS_OPTION_SINCE:
        texts = ["--optimization-level"] + ([] if level is None else [level])
    else:
        key = "-O.mode" if version >= LEVEL_IS_MODE_SINCE else "-O.level"
        texts = [key if level is None else f"{key}={level}"]
    return [Word(text, word.position, word.origin) for text in texts]


def _short_o_dotted(word: Word, version: Version, findings: list[Finding]) -> list[Word]:
    instead = word.text.replace("-O", "-cc", 1)
    if version < SHORT_O_DOTTED_GONE:
        message = f"{word.text!r} at {word.place}: -O.key is deprecated and read as {instead!r}; it is gone from 0.13"
        findings.append(Finding("info", "short-o-dotted-deprecated", message, instead))
        return [Word(instead, word.position, word.origin)]
    message = (
        f"{word.text!r} at {word.place}: vLLM {version_text(version)} takes what follows -O for an optimization level, "
        f"{word.text[2:]!r}, and refuses it"
    )
    findings.append(Finding("error", "short-o-dotted-removed", message, instead))
    # Read as it was meant: the rest of the answer then says what the mended command would do.
    return [Word(instead, word.position, word.origin)]


def _value(text: str, version: Version) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        number = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT])", text)
        if number and version >= HUMAN_NUMBERS_SINCE:
            return int(float(number[1]) * _UNITS[number[2]])
        return text


def _nested(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    return value


def _merge(old: dict[str, Any], new: Mapping[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            _merge(old[key], value)
        elif isinstance(value, list) and isinstance(old.get(key), list):
            old[key] = old[key] + value
        else:
            old[key] = value
