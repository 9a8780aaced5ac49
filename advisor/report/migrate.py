"""What a migration changed, for people (comment lines above the rewritten file) and for scripts (JSON). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from advisor.engine.default_changes import DefaultChange
from advisor.engine.migrate import Migration
from advisor.engine.versions import version_text


def comment_lines(
    migration: Migration, notes: tuple[str, ...], with_defaults: bool, env: Mapping[str, str]
) -> list[str]:
    """Lines that all start with `#`, so that the rewritten text below them stays a file of its kind."""
    # A line break in a value must not end the comment.
    return [("# " + " ".join(line.splitlines())).rstrip() for line in _lines(migration, notes, with_defaults, env)]


def _lines(migration: Migration, notes: tuple[str, ...], with_defaults: bool, env: Mapping[str, str]) -> Iterator[str]:
    yield f"vLLM {version_text(migration.old)} -> {version_text(migration.new)}"
    yield from (f"note: {note}" for note in (*notes, *migration.notes))
    if env:
        yield "to set in the environment: " + " ".join(f"{name}={value}" for name, value in env.items())
    if not migration.changed and not migration.lost:
        yield "nothing is written differently"
    for change in migration.changed:
        reason = f" ({change.reason})" if change.reason else ""
        yield f"changed: {change.before} -> {change.after or 'nothing'}{reason}"
    for lost in migration.lost:
        yield f"NO EQUIVALENT, left out: {lost.before}: {lost.reason}"
    if not with_defaults:
        yield "changed defaults are not listed without --from-version"
        return
    for change in migration.defaults:
        yield _default(change, migration.old > migration.new)


def _default(change: DefaultChange, backwards: bool) -> str:
    since = version_text(change.since)
    if backwards:
        return f"default differs (changed in {since}): {change.setting}: {change.before} instead of {change.after}"
    keep = f"; to keep it: {change.keep}" if change.keep else ""
    return f"default changed in {since}: {change.setting}: {change.before} -> {change.after}{keep}"


def as_json(
    migration: Migration, notes: tuple[str, ...], with_defaults: bool, text: str, model: str | None
) -> dict[str, Any]:
    """The same for scripts. `argv` starts with `vllm serve`; `file` is the rewritten text."""
    return {
        "from_version": version_text(migration.old),
        "to_version": version_text(migration.new),
        "argv": ["vllm", "serve", *([model] if model else []), *migration.spelling.argv()],
        "env": dict(migration.spelling.env),
        "changed": [{"before": c.before, "after": c.after, "reason": c.reason} for c in migration.changed],
        "no_equivalent": [{"before": lost.before, "reason": lost.reason} for lost in migration.lost],
        "default_changes": [
            {"setting": c.setting, "since": version_text(c.since), "before": c.before, "after": c.after, "keep": c.keep}
            for c in (migration.defaults if with_defaults else ())
        ],
        "notes": [*notes, *migration.notes],
        "file": text,
    }
