"""The second half of vLLM's parser: argparse with the options that a version has. What it would refuse becomes a finding.

Parsing goes on after a mistake, so that one answer names them all. Kinds of options come from the releases' own parsers
(option_tables.py): a switch takes no value, a list takes all words up to the next option, anything else takes one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor.engine.reading import option_history
from advisor.engine.reading.option_tables import OptionStatus, option_status, options_of, unabbreviated
from advisor.engine.reading.pasted_words import Word, mentions
from advisor.engine.versions import version_text
from advisor.records import Finding

Version = tuple[int, ...]

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_OPTIONAL_VALUE = ("--hf-token",)  # the only option of any release that may come with or without one
_BOOLEAN_WORDS = ("true", "false", "yes", "no", "on", "off", "0", "1")


@dataclass(frozen=True)
class Given:
    """One option as given: its long name, the spelling used, and its values (none for a switch)."""

    option: str
    kind: str
    word: Word
    values: tuple[str, ...] = ()

    @property
    def spelling(self) -> str:
        return self.word.text.partition("=")[0]


@dataclass
class Arguments:
    """Options in the order of argparse, where the last of a kind wins; words that belong to no option.

    `extra` are shell variables among those words: what they become is not known.
    """

    given: list[Given] = field(default_factory=list)
    model: str | None = None
    findings: list[Finding] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


def read_arguments(
    words: Sequence[Word], version: Version, positional_model: bool = True, references: Sequence[str] = ()
) -> Arguments:
    """What argparse makes of the words. The first word that belongs to no option is the model."""
    found = Arguments()
    at, plain_only = 0, False
    while at < len(words):
        word = words[at]
        at += 1
        if word.text == "--" and not plain_only:
            plain_only = True
            continue
        status = None if plain_only else _option(word, version, found.findings)
        if status is None:
            if mentions(word.text, references) and (found.model is not None or not positional_model):
                found.extra.append(word.text)
                continue
            _stray(word, words[at - 2] if at > 1 else None, found, version, positional_model)
        elif status.exists:
            at += _take(word, status, words[at:], found, version)
        else:
            at += _skip(words[at:], version)
    return found


# ---------------------------------------------------------------- one option


def _option(word: Word, version: Version, findings: list[Finding]) -> OptionStatus | None:
    """The option that a word is (which may be one that does not exist, with a finding); None for any other word."""
    text = word.text
    if not text.startswith("-") or text == "-":
        return None
    name = text if option_status(text, version).exists else text.partition("=")[0]
    status = option_status(name, version)
    if status.exists:
        return status
    attached = option_status(text[:2], version)
    if re.match(r"-[A-Za-z].", text) and attached.exists:  # `-O3`: one letter with its value
        return attached
    meant = unabbreviated(name, version) if name.startswith("--") else ()
    options = {option_status(one, version).option for one in meant}
    if len(options) == 1:
        return option_status(meant[0], version)
    if len(options) > 1 and status.state == "unknown":
        message = f"{name!r} at {word.place} may mean {', '.join(meant[:6])}: vLLM refuses it"
        findings.append(Finding("error", "option-ambiguous", message, "write the option out"))
        return status
    if _NEGATIVE_NUMBER.fullmatch(text):
        return None
    if re.search(r"\s", text):
        return _several_words(word, version, findings)
    findings.append(option_history.explain_missing(name, word, status, version, _nearest(name, version)))
    return status


def _several_words(word: Word, version: Version, findings: list[Finding]) -> OptionStatus | None:
    """`--max-num-seqs 64` as one argument, as in a list of Kubernetes args: argparse takes it for no option at all."""
    first = word.text.split()[0].partition("=")[0]
    if not option_status(first, version).exists:
        return None
    message = f"{word.text!r} at {word.place} is one argument, and no option has that name: vLLM refuses it"
    parts = ", ".join(repr(part) for part in word.text.split(maxsplit=1))
    findings.append(Finding("error", "words-in-one-argument", message, f"two arguments: {parts}"))
    return OptionStatus(word.text, "unknown")


def _nearest(name: str, version: Version) -> str | None:
    close = difflib.get_close_matches(name.replace("_", "-"), options_of(version), n=1, cutoff=0.75)
    return close[0] if close else None


def _take(word: Word, status: OptionStatus, following: Sequence[Word], found: Arguments, version: Version) -> int:
    """Read the option's values; the number of following words that were taken."""
    name, equals, attached = word.text.partition("=")
    if re.fullmatch(r"-[A-Za-z]", status.name) and len(name) > 2:
        name, equals, attached = status.name, "=", word.text[2:].removeprefix("=")
    option, kind = status.option or status.name, status.kind or "value"
    if kind == "switch":
        if equals:
            message = f"{word.text!r} at {word.place}: {name} takes no value, vLLM refuses it"
            found.findings.append(Finding("error", "boolean-with-value", message, _switch(name, attached, version)))
            name = _switch(name, attached, version) or name
        found.given.append(Given(option, kind, Word(name, word.position, word.origin)))
        return 0
    if equals:
        found.given.append(Given(option, kind, Word(name, word.position, word.origin), (attached,)))
        return 0
    taken = _values(following, version, many=kind == "list")
    if not taken and option not in _OPTIONAL_VALUE:
        message = f"{name!r} at {word.place} needs a value, and none follows"
        found.findings.append(Finding("error", "value-missing", message, f"{name} VALUE"))
    else:
        found.given.append(Given(option, kind, word, tuple(taken)))
    return len(taken)


def _values(following: Sequence[Word], version: Version, many: bool) -> list[str]:
    taken: list[str] = []
    for word in following:
        if word.text == "--" or (_looks_like_option(word.text, version) and not _NEGATIVE_NUMBER.fullmatch(word.text)):
            break
        taken.append(word.text)
        if not many:
            break
    return taken


def _skip(following: Sequence[Word], version: Version) -> int:
    """Words that most likely were the values of an option that does not exist: all up to the next option."""
    return len(_values(following, version, many=True))


def _looks_like_option(text: str, version: Version) -> bool:
    if not text.startswith("-") or text == "-":
        return False
    known = option_status(text.partition("=")[0], version).exists
    return known or not re.search(r"\s", text)


def _switch(name: str, value: str, version: Version) -> str:
    """`--x` or `--no-x` for what was meant by `--x=false`."""
    if value.lower() in ("true", "yes", "on", "1"):
        return name
    other = "--" + name.removeprefix("--no-") if name.startswith("--no-") else "--no-" + name.removeprefix("--")
    return other if option_status(other, version).exists else ""


# ---------------------------------------------------------------- words without an option


def _stray(word: Word, before: Word | None, found: Arguments, version: Version, positional_model: bool) -> None:
    last = found.given[-1] if found.given else None
    after_switch = bool(last and last.kind == "switch" and before and before.position == last.word.position)
    if after_switch and last and word.text.lower() in _BOOLEAN_WORDS:
        message = (
            f"{last.spelling} {word.text} at {word.place}: {last.spelling} takes no value, vLLM refuses {word.text!r}"
        )
        fix = _switch(last.spelling, word.text, version)
        found.findings.append(Finding("error", "boolean-with-value", message, fix))
        if fix and fix != last.spelling:
            found.given[-1] = Given(last.option, last.kind, Word(fix, last.word.position, last.word.origin))
    elif found.model is None and positional_model:
        found.model = word.text
    else:
        message = f"{word.text!r} at {word.place} belongs to no option: vLLM {version_text(version)} refuses it"
        found.findings.append(
            Finding("error", "word-without-option", message, "leave it out, or quote the value it belongs to")
        )
