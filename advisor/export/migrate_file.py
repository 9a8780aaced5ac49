"""Files that `advisor migrate` takes and gives back: a profile, a vLLM configuration file, a manifest, or a text with a command."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.engine.options import ServeOptions
from advisor.engine.reading.command_line import ReadCommand, read_command, read_pasted
from advisor.engine.reading.manifests import Container, parse_yaml, pasted_container, read_config_file, vllm_container
from advisor.engine.reading.option_tables import option_status
from advisor.engine.reading.pasted import unwrap_text
from advisor.engine.reading.pasted_words import SERVE
from advisor.engine.reading.shell_text import without_comments
from advisor.engine.versions import RELEASES, known_version, version_text
from advisor.engine.writing.migrate import Migration
from advisor.engine.writing.migrate_reading import items_of
from advisor.engine.writing.spelling_files import vllm_config_yaml
from advisor.errors import InputError
from advisor.export.manifest_part import manifest_notes, manifest_part
from advisor.serving_profile.args import ServeLine, format_line, format_lines
from advisor.serving_profile.schema import Profile, Serve
from advisor.serving_profile.store import read_profile
from advisor.serving_profile.text import profile_text
from advisor.yaml_files import read_yaml

Version = tuple[int, ...]
PROFILE, CONFIG, COMMAND, MANIFEST = "profile", "vllm-yaml", "command", "manifest"
# What is said although it needs no attention: what became of words that are not in the result, or not as they were written.
_SAID = ("variable-default-taken", "shell-words-left-out", "commands-passed-over", "words-passed-over", "env-value-not-known")
# Mistakes that the result does not repeat: what is meant is in it.
_MENDED = ("quotes-inside-argument", "variable-without-brackets")
_SECRET = "variable-not-expanded"  # in a profile a variable stands for a secret and is expected
_LONG = 100  # characters; a longer command is broken, one option a line


@dataclass(frozen=True)
class Source:
    """What a file says, as its version reads it."""

    kind: str  # profile, vllm-yaml, command or manifest
    version: Version
    model: str | None
    options: ServeOptions
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # what its version refuses; the words in question are not carried over
    guessed: bool = False  # the version was not given: it is the newest release that knows every option
    profile: Profile | None = None
    extra: tuple[str, ...] = ()  # shell variables that stand alone
    references: tuple[str, ...] = ()  # shell variables that the written command leaves to the shell
    quoted: frozenset[str] = frozenset()  # those in double quotes
    container: Container | None = None  # of a manifest
    entry: str = SERVE


def read_source(path: Path, from_version: str | None, container: str | None = None) -> Source:
    """The file's command as `from_version` reads it; a profile and an image's tag know their version themselves.

    `container` names one of a manifest. Raises InputError for a file that is none of these, and for a version that is not known.
    """
    if path.suffix in (".yaml", ".yml"):
        documents = parse_yaml(_raw(path), str(path))
        if any(isinstance(one, dict) and "kind" in one and "apiVersion" in one for one in documents):
            return _manifest(vllm_container(documents, container), from_version)
        data, _ = read_yaml(path, "file")
        if isinstance(data, dict) and str(data.get("schema", "")).startswith("advisor."):
            return _profile(read_profile(path), from_version)
        if not isinstance(data, dict):
            raise InputError(f"file {str(path)!r}: expected options of `vllm serve`, found {type(data).__name__}")
        return _as_read(CONFIG, lambda version: read_config_file(data, version), from_version)
    return _command(without_comments(_raw(path)), from_version)


def _raw(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"file {str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"file {str(path)!r} cannot be read: {error}") from None


def _manifest(container: Container, from_version: str | None) -> Source:
    pasted = pasted_container(container)
    source = _as_read(MANIFEST, lambda version: read_pasted(pasted, version), from_version or pasted.version)
    return replace(source, quoted=pasted.quoted, container=container, entry=pasted.entry)


def _command(text: str, from_version: str | None) -> Source:
    pasted = unwrap_text(text)
    source = _as_read(COMMAND, lambda version: read_pasted(pasted, version), from_version or pasted.version)
    return replace(source, quoted=pasted.quoted)


def _profile(profile: Profile, from_version: str | None) -> Source:
    line = profile.serve.line()
    words = [*(f"{name}={value}" for name, value in line.env.items()), "vllm", "serve", line.model, *line.words]
    source = _as_read(PROFILE, lambda version: read_command(words, version), from_version or profile.software.vllm)
    return replace(source, profile=profile)


def _as_read(kind: str, read: Callable[[Version], ReadCommand], given: str | None) -> Source:
    if given is None:
        version, found = _newest_that_knows(read)
        accepts = "accepts it" if not _errors(found) else "objects least to it"
        notes = [f"--from-version not given: read as {version_text(version)}, the newest release that {accepts}"]
    else:
        version, note = known_version(given)
        found, notes = read(version), [note] if note else []
    told = [finding for finding in found.findings if not (kind == PROFILE and finding.code == _SECRET)]
    notes += [f"{one.code}: {one.message}" for one in told if one.severity == "warning" or one.code in (*_SAID, *_MENDED)]
    problems = [f"{one.code}: {one.message}" for one in told if one.severity == "error" and one.code not in _MENDED]
    options, env, lost = _with_variables(found, version)
    notes += [
        f"{name} is kept as it is: with a shell variable in it, it cannot be read, and nothing in it is rewritten"
        for name, value in found.unknown.items()
        if isinstance(value, str) and option_status(name, version).kind == "json"
    ]
    notes += [
        f"{name}: in JSON a shell variable is text; without its quotes it is a number"
        for name, value in found.unknown.items()
        if isinstance(value, Mapping)
    ]
    return Source(
        kind, version, found.model, options, env, tuple(notes), (*problems, *lost), given is None,
        extra=found.extra, references=found.references,
    )  # fmt: skip


def _with_variables(read: ReadCommand, version: Version) -> tuple[ServeOptions, dict[str, str], list[str]]:
    """(options and environment with the shell variables in them, in their order; those that cannot be carried over)."""
    values, lost = {**read.options.values}, []
    for name, value in read.unknown.items():
        if not name.startswith("-"):
            continue
        try:
            items_of(ServeOptions({name: value}), {}, version)
        except (ValueError, InputError):
            shown = " ".join(ServeOptions({name: value}).argv())
            lost.append(f"{_SECRET}: {shown}: what becomes of it depends on the shell variable")
        else:
            values[name] = value
    order = [name for name in read.origins if name in values]
    env = {**read.env, **{name: value for name, value in read.unknown.items() if not name.startswith("-")}}
    return ServeOptions({name: values[name] for name in (*order, *values)}), env, lost


def _newest_that_knows(read: Callable[[Version], ReadCommand]) -> tuple[Version, ReadCommand]:
    """The newest release that reads the words without an error, else the one with the fewest."""
    tried = [(version, read(version)) for version in reversed(RELEASES)]
    return min(tried, key=lambda pair: _errors(pair[1]))


def _errors(read: ReadCommand) -> int:
    return sum(finding.severity == "error" for finding in read.findings)


# ---------------------------------------------------------------- written again


def rewritten(source: Source, migration: Migration) -> str:
    """Text of the same kind of file for the new version, ending with a newline."""
    model = source.model or "MODEL"
    line = ServeLine(model, tuple(migration.spelling.argv()), dict(migration.spelling.env))
    if source.kind == CONFIG:
        return vllm_config_yaml(source.model, migration.spelling.options, migration.new)
    if source.profile is not None:
        return _profile_text(source.profile, line, migration)
    if source.container is not None:
        # What the container's env says stays there.
        line = replace(line, env={name: value for name, value in line.env.items() if source.container.env.get(name) != value})
        text = shell_text(line, source.references, source.quoted, source.extra)
        return manifest_part(source.container, source.entry, line, text)
    return shell_text(line, source.references, source.quoted, source.extra) + "\n"


def shell_text(
    line: ServeLine, references: Sequence[str] = (), quoted: Collection[str] = (), extra: Sequence[str] = ()
) -> str:
    """The command as text for a shell, which still puts in the variables that are `references`; `extra` are words behind it."""
    names = {f"${{_advisor_{index}_}}": written for index, written in enumerate(references)}

    def held(text: str) -> str:
        for name, written in sorted(names.items(), key=lambda pair: -len(pair[1])):
            text = text.replace(written, name)
        return text

    kept = ServeLine(
        held(line.model), tuple(map(held, line.words)), {name: held(value) for name, value in line.env.items()}
    )
    text = format_line(kept)
    behind = "".join(f" {word}" for word in extra)
    if len(text) + len(behind) > _LONG:
        text, behind = format_lines(kept), "".join(f" \\\n  {word}" for word in extra)
    for name, written in names.items():
        if written not in quoted:  # alone it may stand for several words
            text = text.replace(f' "{name}"', f" {written}")
        text = text.replace(name, written)
    return text + behind


def _profile_text(profile: Profile, line: ServeLine, migration: Migration) -> str:
    """The profile with another `serve`. Its figures stay those of the version that they were measured with."""
    serve = Serve(args=line.options(), env=dict(line.env), command=format_line(line))
    head = (
        f"# `serve` below is rewritten for vLLM {version_text(migration.new)}; "
        f"everything else, above all every figure, is of vLLM {profile.software.vllm}: measure it again.\n"
    )
    return head + profile_text(profile.model_copy(update={"serve": serve}))


def said_of_manifest(source: Source, migration: Migration) -> tuple[str, ...]:
    if source.container is None:
        return ()
    return tuple(manifest_notes(source.container, migration.spelling.env, version_text(migration.new)))


def beside(source: Source, migration: Migration) -> dict[str, Any]:
    """What the file cannot hold: variables of a vLLM configuration file."""
    return dict(migration.spelling.env) if source.kind == CONFIG else {}
