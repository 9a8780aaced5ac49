"""A command as a person pastes it -> what that vLLM version's own parser would make of it, with what is lost or refused.

    words -> pasted.py (shell, docker, python) -> config_file.py -> flexible_words.py -> argument_parser.py -> json_options.py

The result is the same dictionary of options that parse_options() gives, but nothing is raised for what vLLM would refuse:
that is a finding. Compared with the releases' own parsers: see tests/engine/test_command_line.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.engine.options import ServeOptions
from advisor.engine.reading.argument_parser import Arguments, Given, read_arguments
from advisor.engine.reading.config_file import config_words
from advisor.engine.reading.flexible_words import Dotted, flexible
from advisor.engine.reading.json_options import JsonValue, check_keys, from_dotted, from_given, keep_last
from advisor.engine.reading.option_history import explain_missing
from advisor.engine.reading.option_tables import option_status
from advisor.engine.reading.pasted import unwrap
from advisor.engine.reading.pasted_words import SERVE, Pasted, Word, mentions
from advisor.engine.reading.value_checks import refused_values, unknown_variables, without_effect
from advisor.engine.versions import version_text
from advisor.records import Finding

Version = tuple[int, ...]

MODEL_OPTION_MOVED = (0, 11, 2)  # `vllm serve --model M` is refused before and taken for the positional one since
SERVED_NAME_NEEDS_MODEL = (0, 17, 1)
_GATHERED = ("--middleware",)  # argparse's append


@dataclass(frozen=True)
class ReadCommand:
    """What a version makes of a command. `origins`: long option -> flag or config-file.

    `references` are shell variables that nothing gives a value to, as written. `unknown` are options and variables (by name)
    whose value holds one: they are in neither `options` nor `env`. `extra` are words that are one and belong to no option, in
    quotes where they had some.
    """

    model: str | None
    options: ServeOptions
    env: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    unknown: dict[str, Any] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


def read_command(words: Sequence[str], version: Version, config_files: Mapping[str, Any] | None = None) -> ReadCommand:
    """What `version` makes of the words. `config_files`: path as written after --config -> the file's parsed YAML.

    Raises InputError where the words are no vLLM command at all, with the word and its position.
    """
    return read_pasted(unwrap(words), version, config_files)


def config_path(pasted: Pasted) -> str | None:
    """The file that `--config PATH` names; None without one (`--config=PATH` is not read by vLLM)."""
    texts = [word.text for word in pasted.words]
    at = texts.index("--config") if "--config" in texts else len(texts)
    return texts[at + 1] if at + 1 < len(texts) else None


def read_pasted(pasted: Pasted, version: Version, config_files: Mapping[str, Any] | None = None) -> ReadCommand:
    """The same for words whose surroundings are taken off already."""
    findings = list(pasted.findings)
    findings += [*_unexpanded(pasted), *_model_first(pasted, version)]
    words, model = _model_option(list(pasted.words), pasted.entry, version, findings)
    words = _with_config(words, pasted.entry, version, config_files or {}, model, findings)
    parsed = flexible(words, version)
    arguments = read_arguments(parsed.words, version, model is None, pasted.references)
    options, origins = _options(arguments, parsed.dotted, version, findings, pasted.references)
    options, unknown = _not_known(options, pasted.references)
    env, unknown_env = _not_known(pasted.env, pasted.references)
    named = {**options, **unknown}.get("--model")
    for found in (options, unknown, origins):
        found.pop("--model", None)
    model, left = _model(model, arguments, named, pasted.references)
    extra = tuple(f'"{word}"' if word in pasted.quoted else word for word in left)
    findings += [
        *parsed.findings,
        *arguments.findings,
        *refused_values(options, version),
        *without_effect(options, version),
        *unknown_variables(env, version),
    ]
    return ReadCommand(
        model, ServeOptions(options), env, origins, tuple(dict.fromkeys(findings)), {**unknown, **unknown_env}, extra,
        pasted.references,
    )  # fmt: skip


def _model(
    model: str | None, arguments: Arguments, named: Any, references: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """(the model, words left over). A lone shell variable is no model where an option names one."""
    given, extra = arguments.model, tuple(arguments.extra)
    if given is not None and isinstance(named, str) and mentions(given, references):
        given, extra = None, (given, *extra)
    return model or given or (named if isinstance(named, str) else None), extra


def _not_known(values: Mapping[str, Any], references: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(values without shell variables in them, those with). Of an object the keys that are known stay."""
    known, unknown = {}, {}
    for name, value in values.items():
        if not mentions(value, references):
            known[name] = value
            continue
        unknown[name] = value
        if isinstance(value, Mapping) and (rest := _not_known(value, references)[0]):
            known[name] = rest
    return known, unknown


# ---------------------------------------------------------------- model and config file


def _unexpanded(pasted: Pasted) -> list[Finding]:
    """Shell variables that nothing here gives a value to: each is named once."""
    texts = [(word.text, f"at {word.place}") for word in pasted.words]
    texts += [(value, f"in {name}=") for name, value in pasted.env.items()]
    findings = []
    for reference in pasted.references:
        place = next((place for text, place in texts if reference in text), None)
        if place is not None:
            message = f"{reference} {place}: shell variable, not expanded"
            findings.append(Finding("warning", "variable-not-expanded", message, "write the value to see what it does"))
    return findings


def _model_first(pasted: Pasted, version: Version) -> list[Finding]:
    """`--served-model-name` before the model, or without one: refused since 0.17.1."""
    texts = [word.text for word in pasted.words]
    if pasted.entry != SERVE or version < SERVED_NAME_NEEDS_MODEL or not texts or not texts[0].startswith("-"):
        return []
    if any(re.match(r"--(model|config)(=.+|$)", text) for text in texts):
        return []
    if not any(re.match(r"--served[-_]model[-_]name(=.+|$)", text) for text in texts):
        return []
    where = f"{texts[0]!r} at word {pasted.words[0].position}"
    message = f"{where}: with --served-model-name the model must come first, vLLM refuses it"
    return [Finding("error", "model-not-first", message, "vllm serve MODEL ...")]


def _model_option(
    words: list[Word], entry: str, version: Version, findings: list[Finding]
) -> tuple[list[Word], str | None]:
    """`vllm serve --model M`: the model is taken out of the words; it is refused before 0.11.2."""
    at = next((i for i, word in enumerate(words) if re.match(r"--model(=.+|$)", word.text)), None)
    if entry != SERVE or at is None:
        return words, None
    word = words[at]
    attached = word.text.partition("=")[2]
    if not attached and at + 1 == len(words):
        return words, None  # argparse says that the value is missing
    model = attached or words[at + 1].text
    left = words[:at] + words[at + (1 if attached else 2) :]
    if version < MODEL_OPTION_MOVED and not attached:
        message = f"--model at {word.place}: vLLM {version_text(version)} wants the model right after `vllm serve` and refuses it"
        findings.append(Finding("error", "model-by-option", message, f"vllm serve {model} ..."))
    return left, model


def _with_config(
    words: list[Word],
    entry: str,
    version: Version,
    files: Mapping[str, Any],
    model: str | None,
    findings: list[Finding],
) -> list[Word]:
    """The words of `--config PATH` in their place: behind the model, before all other words, so that those win."""
    for word in words:
        if word.text.startswith("--config="):
            path = word.text.partition("=")[2]
            message = f"{word.text!r} at {word.place} is accepted, but the file is not read: nothing in it takes effect"
            findings.append(Finding("error", "config-equals-not-read", message, f"--config {path}"))
    at = next((i for i, word in enumerate(words) if word.text == "--config"), None)
    if at is None or at + 1 == len(words):
        return words
    path = words[at + 1].text
    left = words[:at] + words[at + 2 :]
    if path not in files:
        message = f"the config file {path} is not here: what it says is not in this answer"
        findings.append(Finding("warning", "config-file-not-here", message, "run this where the file is"))
        return left
    inserted, said = config_words(files[path], version, entry)
    findings += said
    first = 1 if entry == SERVE and model is None and left and not left[0].text.startswith("-") else 0
    return left[:first] + inserted + left[first:]


# ---------------------------------------------------------------- options


def _options(
    arguments: Arguments, dotted: Sequence[Dotted], version: Version, findings: list[Finding], references: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """(long option -> value, long option -> origin): the last of each option, as argparse keeps it."""
    options: dict[str, Any] = {}
    origins: dict[str, str] = {}
    jsons: list[JsonValue] = []
    for given in arguments.given:
        if given.kind == "json" and given.values:
            value, said = from_given(given, version)
            if said and mentions(given.values, references):  # whether it is JSON depends on the variable
                value, said = JsonValue(given.option, "json", given.values[0], given.values[0], given.word.origin), []
            findings += said
            jsons += [value] if value else []
            continue
        findings += _given_before(given, options, origins)
        options[given.option] = _plain(given)
        origins[given.option] = given.word.origin
    for group in dotted:
        value = from_dotted(group, version)
        if value is None:
            findings.append(_dotted_unknown(group, version))
        else:
            jsons.append(value)
    kept, lost = keep_last(jsons, version)
    findings += lost
    for option, value in kept.items():
        findings += check_keys(value, version)
        options[option] = dict(value.value) if isinstance(value.value, Mapping) else value.value
        origins[option] = value.origin
    return options, origins


def _given_before(given: Given, options: Mapping[str, Any], origins: Mapping[str, str]) -> list[Finding]:
    """An option that is given a second time, with another value. One in the config file is meant to be replaced."""
    before, now = options.get(given.option), _plain(given)
    if given.option not in options or before == now or origins[given.option] != given.word.origin or given.option in _GATHERED:
        return []
    first, last = (" ".join(map(str, value)) if isinstance(value, list) else value for value in (before, now))
    message = f"{given.option} is given twice: {last} counts, {first} is dropped without a word"
    return [Finding("warning", "option-given-twice", message, "give it once")]


def _dotted_unknown(group: Dotted, version: Version) -> Finding:
    status = option_status(group.spelling, version)
    word = replace(group.words[0], text=group.spelling)
    return explain_missing(group.spelling, word, status, version, None)


def _plain(given: Given) -> Any:
    if given.kind == "switch":
        negative = given.spelling.startswith("--no-") and not given.option.startswith("--no-")
        opposite = _opposite(given.spelling, given.option)
        return not (negative or opposite)
    if given.kind == "list":
        return list(given.values)
    return given.values[0] if given.values else True


def _opposite(spelling: str, option: str) -> bool:
    """--disable-x of an option --enable-x, and the other way round (0.33)."""
    dashed = spelling.replace("_", "-")
    pairs = (("--enable-", "--disable-"), ("--disable-", "--enable-"))
    return any(option.startswith(one) and dashed == other + option.removeprefix(one) for one, other in pairs)
