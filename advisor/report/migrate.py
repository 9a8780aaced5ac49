"""What a migration changed, for people (comment lines above the rewritten file) and for scripts (JSON). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.versions import seen_in, version_text
from advisor.engine.writing.default_changes import DefaultChange
from advisor.engine.writing.migrate import Migration


@dataclass(frozen=True)
class Told:
    """A migration and what was found while its file was read."""

    migration: Migration
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # what the file's own version refuses: the words are not in the result
    with_defaults: bool = True
    env_beside: Mapping[str, str] = field(default_factory=dict)  # variables that the rewritten file cannot hold

    @property
    def complete(self) -> bool:
        return not self.migration.lost and not self.problems


def comment_lines(told: Told) -> list[str]:
    """Lines that all start with `#`, so that the rewritten text below them stays a file of its kind."""
    # A line break in a value must not end the comment.
    return [("# " + " ".join(line.splitlines())).rstrip() for line in _lines(told)]


def _lines(told: Told) -> Iterator[str]:
    migration = told.migration
    yield f"vLLM {version_text(migration.old)} -> {version_text(migration.new)}"
    yield from (f"note: {note}" for note in (*told.notes, *migration.notes))
    yield from (f"NOT READ, left out: {problem}" for problem in told.problems)
    if told.env_beside:
        yield "to set in the environment: " + " ".join(f"{name}={value}" for name, value in told.env_beside.items())
    if not migration.changed and told.complete:
        yield "no setting changes its name or value; a configuration option is always written as one JSON"
    for change in migration.changed:
        reason = f" ({change.reason})" if change.reason else ""
        yield f"changed: {change.before} -> {change.after or 'nothing'}{reason}"
    for lost in migration.lost:
        yield f"NO EQUIVALENT, left out: {lost.before}: {lost.reason}"
    if not told.with_defaults:
        yield "changed defaults are not listed without --from-version"
        return
    for default in migration.defaults:
        yield _default(default, migration.old > migration.new)


def _default(change: DefaultChange, backwards: bool) -> str:
    since = seen_in(change.since)
    if backwards:
        return f"default differs (changed in {since}): {change.setting}: {change.before} instead of {change.after}"
    keep = f"; to keep it: {change.keep}" if change.keep else ""
    return f"default changed in {since}: {change.setting}: {change.before} -> {change.after}{keep}"


def as_json(told: Told, text: str, model: str | None) -> dict[str, Any]:
    """The same for scripts. `argv` starts with `vllm serve`; `file` is the rewritten text."""
    migration = told.migration
    return {
        "from_version": version_text(migration.old),
        "to_version": version_text(migration.new),
        "argv": ["vllm", "serve", *([model] if model else []), *migration.spelling.argv()],
        "env": dict(migration.spelling.env),
        "changed": [{"before": c.before, "after": c.after, "reason": c.reason} for c in migration.changed],
        "no_equivalent": [{"before": lost.before, "reason": lost.reason} for lost in migration.lost],
        "not_read": list(told.problems),
        "default_changes": [
            {"setting": c.setting, "since": version_text(c.since), "before": c.before, "after": c.after, "keep": c.keep}
            for c in (migration.defaults if told.with_defaults else ())
        ],
        "notes": [*told.notes, *migration.notes],
        "file": text,
    }
