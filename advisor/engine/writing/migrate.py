"""A serve command of one vLLM version in the spelling of another: what is written, what changed, what got lost. Pure."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.engine.options import COMPILATION, ServeOptions
from advisor.engine.reading.option_tables import OptionStatus, defaults, env_status, key_status, option_status
from advisor.engine.writing.default_changes import TOLD, DefaultChange, changes_between
from advisor.engine.writing.migrate_reading import Item, items_of
from advisor.engine.writing.migrate_renames import NEEDLESS, Moved, moved
from advisor.engine.writing.spelling import Spelling, clash_of, is_environment, is_option, spell, why
from advisor.engine.writing.spelling_table import Version
from advisor.errors import InputError


@dataclass(frozen=True)
class Change:
    """One thing that is written differently; `after` is empty where the new version needs no word for it."""

    before: str
    after: str
    reason: str = ""


@dataclass(frozen=True)
class Lost:
    """One thing that the new version cannot express, left out of the result."""

    before: str
    reason: str


@dataclass(frozen=True)
class Migration:
    old: Version
    new: Version
    spelling: Spelling
    changed: tuple[Change, ...] = ()
    lost: tuple[Lost, ...] = ()
    defaults: tuple[DefaultChange, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Draft:
    settings: dict[str, Any] = field(default_factory=dict)
    changed: list[Change] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


def migrate(options: ServeOptions, env: Mapping[str, str], old: Version, new: Version) -> Migration:
    """Options and environment as version `old` reads them, for version `new`.

    The old file is taken for what `old` makes of it: a variable that it ignores is left out and said so. Raises InputError
    for a decision that is given twice with different values.
    """
    items, notes = items_of(options, env, old)
    draft = _Draft()
    own = {item.name for item in items}
    for item in items:
        _carry_over(item, new, own, draft)
    if clash := clash_of(draft.settings, new):
        name = list(clash.values)[-1]
        draft.lost.append(Lost(f"{name} {draft.settings.pop(name)}", clash.sentence))
    spelling = spell(draft.settings, new)
    return Migration(
        old, new, spelling, tuple(draft.changed), tuple(draft.lost), tuple(_defaults(old, new, draft.settings)), notes
    )


def _carry_over(item: Item, new: Version, own: set[str], draft: _Draft) -> None:
    """`own` are the names that the file itself gives: they win over what another item stands for."""
    for name, value, reason in _in_new_words(item, new, draft):
        if name != item.name and name in own and not isinstance(value, Mapping):
            continue
        try:
            after = shown(spell({name: value}, new))
        except InputError as error:
            problem = error.problem.split(": ", 1)[-1]
            draft.lost.append(Lost(item.written, problem))
            continue
        _add(draft.settings, name, value)
        if after != item.written or reason:
            draft.changed.append(Change(item.written, after, reason))


def _in_new_words(item: Item, new: Version, draft: _Draft) -> list[tuple[str, Any, str]]:
    """(setting, value, reason) that stand for an item in the new version; what has no equivalent goes to the draft."""
    if is_environment(item.name):
        if (item.name, item.value) in NEEDLESS and not env_status(item.name, new).exists:
            draft.changed.append(Change(item.written, "", NEEDLESS[item.name, item.value]))
            return []
        # Other programs' variables are in the lists of some releases only.
        status = env_status(item.name, new) if item.name.startswith("VLLM_") else OptionStatus(item.name, "unknown")
        if status.state == "removed":
            draft.lost.append(Lost(item.written, f"vLLM does not read it any more: {why(status)}"))
            return []
        if status.state == "added":
            draft.lost.append(Lost(item.written, f"vLLM does not read it yet: {why(status)}"))
            return []
        return [(item.name, item.value, "")]
    try:
        answer = moved(item.name, item.value, new)
    except ValueError:  # a shell variable where a number is wanted
        draft.lost.append(Lost(item.written, "what it becomes depends on a value that is not known here"))
        return []
    if isinstance(answer, Moved):
        if answer.lost:
            draft.lost.append(Lost(item.written, answer.lost))
        elif not answer.settings:
            draft.changed.append(Change(item.written, "", answer.reason))
        return [(name, value, answer.reason) for name, value in answer.settings.items()]
    if is_option(item.name) and isinstance(item.value, Mapping):
        return [(item.name, value, "") for value in _known_keys(item, new, draft)]
    return [(item.name, item.value, "")]


def _known_keys(item: Item, new: Version, draft: _Draft) -> list[dict[str, Any]]:
    """A configuration without the keys that the new version does not have; those are lost, one by one."""
    if not option_status(item.name, new).exists:
        return [item.value]
    kept: dict[str, Any] = {}
    for key, value in item.value.items():
        try:
            spell({item.name: {key: value}}, new)
            kept[key] = value
        except InputError as error:
            status = key_status(item.name, key, new)
            reason = why(status) if status.state in ("removed", "added") else error.problem.split(": ", 1)[-1]
            draft.lost.append(Lost(f"{item.name} {key}={value}", reason))
    return [kept] if kept else []


def _add(settings: dict[str, Any], name: str, value: Any) -> None:
    old = settings.get(name)
    settings[name] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value


def shown(spelling: Spelling) -> str:
    """`VLLM_X=1 --max-num-seqs 8 --compilation-config {"mode":"NONE"}`: for people, unquoted."""
    return " ".join([*(f"{name}={value}" for name, value in spelling.env.items()), *spelling.argv()])


def _defaults(old: Version, new: Version, settings: Mapping[str, Any]) -> list[DefaultChange]:
    """Changes between the versions that the person's own settings do not make irrelevant."""
    given = {*settings, *(f"{COMPILATION}.{key}" for key in settings.get(COMPILATION, {}))}
    found = [replace(change, keep=_kept(change.kept_by, old, new)) for change in changes_between(old, new, given)]
    low, high = sorted((tuple(old), tuple(new)))
    for name in TOLD:
        history = defaults(name)
        if name in settings or len(history) < 2:
            continue
        steps = itertools.pairwise(history)
        found += [
            DefaultChange(name, now.since, _word(was.value), _word(now.value), (name,), _keep(name, was.value, old, new))
            for was, now in steps
            if low < now.since <= high
        ]
    return sorted(found, key=lambda change: change.since)


def _keep(name: str, value: Any, old: Version, new: Version) -> str:
    return "" if value is None or isinstance(value, bool) else _kept((name, value), old, new)


def _kept(setting: tuple[str, Any] | None, old: Version, new: Version) -> str:
    """What keeps the old behaviour in the new version's words; nothing where it has none, or is the older one."""
    if setting is None or new < old:
        return ""
    try:
        words = spell({setting[0]: setting[1]}, new)
    except InputError:
        return ""
    return " ".join([*(f"{name}={value}" for name, value in words.env.items()), *map(shlex.quote, words.argv())])


def _word(value: Any) -> str:
    return "chosen by vLLM" if value is None else str(value)
