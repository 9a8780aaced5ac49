"""Serving decisions in the spelling of any vLLM version from 0.9.0 on: options, environment, and nothing said twice.

Decisions have abstract names (spelling_table.TABLE: `attention_backend`, `cudagraph_mode`, ...); a name that starts with a dash
is an option itself, a name in capitals an environment variable. What a version cannot express is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.options import COMPILATION, ServeOptions, deep_merge
from advisor.engine.reading.option_tables import OptionStatus, choices, config_keys, key_status, option_status
from advisor.engine.versions import OLDEST, seen_in, version_text
from advisor.engine.writing.spelling_table import (
    COMBINATIONS,
    DOMAINS,
    NOTHING,
    RENAMED_KEYS,
    SAME_AS,
    SAME_KEYS,
    TABLE,
    Combination,
    Impossible,
    Version,
    known_backend,
    row,
)
from advisor.errors import InputError


@dataclass(frozen=True)
class Spelling:
    """What to put on the command line and into the environment; each option once, configurations as one JSON value."""

    options: ServeOptions = field(default_factory=ServeOptions)
    env: Mapping[str, str] = field(default_factory=dict)

    def argv(self) -> list[str]:
        return self.options.argv()


def is_environment(name: str) -> bool:
    return re.fullmatch(r"[A-Z][A-Z0-9_]*", name) is not None


def is_option(name: str) -> bool:
    return name.startswith("-")


def spell(settings: Mapping[str, Any], version: Version, check: bool = True) -> Spelling:
    """Settings for a version. A value None is left out.

    check: refuse options, choices and configuration keys that the release standing for this version does not know. Raises
    InputError that names the setting and what it needs; for a name that is no setting; and for versions before 0.9.0.
    """
    if tuple(version) < OLDEST:
        raise InputError(f"vLLM {version_text(version)} is too old: {version_text(OLDEST)} or newer is needed")
    options: dict[str, Any] = {}
    env: dict[str, str] = {}
    decided = abstract(settings)
    if clash := clash_of(decided, version):
        together = " with ".join(_shown(name, decided[name]) for name in clash.values)
        raise InputError(f"vLLM {version_text(version)} cannot express {together}: {clash.sentence}")
    for name, value in decided.items():
        if value is None:
            continue
        try:
            if name in TABLE:
                _place(options, env, name, value, version)
            elif is_environment(name):
                env[name] = str(value)
            elif is_option(name):
                _merge(options, name, value)
            else:
                raise InputError(f"{name!r} is no setting", f"known: {', '.join(TABLE)}, --options and VARIABLES")
        except Impossible as reason:
            raise InputError(f"vLLM {version_text(version)} cannot express {_shown(name, value)}: {reason}") from None
    options = {name: _new_keys(name, value, version) for name, value in options.items()}
    if check:
        for name, value in options.items():
            _check(name, value, version)
    return Spelling(ServeOptions(options), env)


def clash_of(decided: Mapping[str, Any], version: Version) -> Combination | None:
    """The combination among abstract settings that a version does not honour, if there is one."""
    for found in COMBINATIONS:
        given = all(_among(decided.get(name), values) for name, values in found.values.items())
        if given and found.since <= tuple(version) < found.until:
            return found
    return None


def _among(value: Any, values: tuple[Any, ...]) -> bool:
    return not isinstance(value, list | Mapping) and value in values


def abstract(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings with options and configuration keys that say the same as a decision turned into the decision.

    Raises InputError for a decision that is given twice with different values: vLLM refuses that or drops one silently.
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and not is_environment(name):
            rest = {}
            for key, item in value.items():
                if (name, key) in SAME_KEYS:
                    _once(found, SAME_KEYS[name, key], item, f"{name}.{key}")
                else:
                    rest[key] = item
            if rest or name in TABLE:
                _once(found, name, rest, name)
        else:
            _once(found, SAME_AS.get(name, name), value, name)
    return found


def _once(found: dict[str, Any], name: str, value: Any, spelled: str) -> None:
    value = _normal(name, value)
    if name in found and found[name] != value:
        raise InputError(f"{name} is given twice, as {found[name]!r} and by {spelled} as {value!r}", "give it once")
    found[name] = value


_NUMBERS = (
    "max_cudagraph_capture_size", "optimization_level", "speculative_tokens", "flash_attention_version",
    "flash_attention_splits", "max_num_seqs", "max_num_batched_tokens", "block_size",
)  # fmt: skip


def _normal(name: str, value: Any) -> Any:
    """One form a decision's value: names in capitals, whole numbers as numbers, modes by name."""
    if name in _NUMBERS and isinstance(value, str) and value.strip().isdigit():
        return int(value)
    if name == "cudagraph_capture_sizes" and value is not None:
        given = value if isinstance(value, list | tuple) else [value]
        return [int(item) if str(item).isdigit() else item for item in given]
    if name == "compilation_mode" and str(value) in ("0", "1", "2", "3"):
        return ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")[int(value)]
    if name in ("compilation_mode", "cudagraph_mode") and isinstance(value, str):
        return value.upper()
    return value


# ---------------------------------------------------------------- placing


def _place(options: dict[str, Any], env: dict[str, str], name: str, value: Any, version: Version) -> None:
    if name in DOMAINS and value not in DOMAINS[name]:
        raise InputError(f"{name} {value!r} is not known", f"allowed: {', '.join(map(str, DOMAINS[name]))}")
    spelled = row(name, version)
    known = not isinstance(value, list | Mapping)
    written = spelled.values.get(value, value) if known else value
    if written is NOTHING:
        return
    if spelled.cannot or (known and value in spelled.refused):
        raise Impossible(spelled.cannot or spelled.refused[value])
    if spelled.renamed:
        written = spelled.renamed(written, version)
    if spelled.env:
        env[spelled.env] = str(written)
    elif spelled.option and spelled.key:
        for key in reversed(spelled.key.split(".")):
            written = {key: list(written) if isinstance(written, tuple) else written}
        _merge(options, spelled.option, written)
    elif spelled.option:
        _merge(options, spelled.option, written)


def _merge(options: dict[str, Any], name: str, value: Any) -> None:
    old = options.get(name)
    if isinstance(old, Mapping) and isinstance(value, Mapping):
        options[name] = deep_merge(old, value)
    else:
        options[name] = (
            dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
        )


def _new_keys(place: str, value: Any, version: Version) -> Any:
    """Configuration keys under the names that the version has, where only the name changed. `place` is `--option.key`."""
    if not isinstance(value, Mapping):
        return value
    written: dict[str, Any] = {}
    for key, item in value.items():
        for name in _key_names(place, key, version):
            written[name] = _new_keys(f"{place}.{key}", item, version)
    return written


def _key_names(place: str, key: str, version: Version) -> tuple[str, ...]:
    for (where, old), (new, since) in RENAMED_KEYS.items():
        if where == place and key == old and version >= since:
            return new
        if where == place and new == (key,) and version < since:
            return (old,)
    return (key,)


# ---------------------------------------------------------------- checking


def _check(name: str, value: Any, version: Version) -> None:
    status = option_status(name, version)
    if status.state not in ("exists", "unknown"):
        raise InputError(f"vLLM {version_text(version)} has no {name}: {why(status)}")
    if status.kind == "switch":
        _check_switch(name, value, version)
    if name == "--attention-backend" and not known_backend(value, version):
        raise InputError(f"vLLM {version_text(version)} has no attention backend {value}")
    allowed = choices(name, version)
    given = value if isinstance(value, list) else [value]
    if allowed and isinstance(value, str | list) and not set(map(str, given)) <= set(map(str, allowed)):
        raise InputError(
            f"vLLM {version_text(version)} cannot express {_shown(name, value)}: it takes {', '.join(map(str, allowed))}"
        )
    if isinstance(value, Mapping):
        _check_keys(name, "", value, version)


def _check_switch(name: str, value: Any, version: Version) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} takes no value, found {value!r}", f"give {name}, or --no-{name.removeprefix('--')}")
    off = "--no-" + name.removeprefix("--")
    if value is False and not option_status(off, version).exists:
        raise InputError(f"vLLM {version_text(version)} has no {off}: leave {name} out instead")


def _check_keys(option: str, parent: str, value: Mapping[str, Any], version: Version) -> None:
    for key, item in value.items():
        place = f"{parent}{key}"
        # A part without a table of its own, such as inductor_compile_config, takes any key.
        if not config_keys(f"{option}.{parent}".rstrip("."), version):
            return
        status = key_status(option, place, version)
        if not status.exists:
            reason = why(status) if status.state != "unknown" else "no release read has it"
            raise InputError(f"vLLM {version_text(version)} has no key {place!r} in {option}: {reason}")
        if isinstance(item, Mapping):
            _check_keys(option, f"{place}.", item, version)


def why(status: OptionStatus) -> str:
    """`removed in 0.13.0`, `it needs 0.17.1 or newer`, `removed in 0.13.0; it is --x now`, `unknown`."""
    if status.changed is None:
        return "no release read has it"
    text = version_text(status.changed)
    if status.state == "added":
        return f"it needs {text} or newer" + (f"; before, it was {status.renamed_to}" if status.renamed_to else "")
    return f"removed in {seen_in(status.changed)}" + (f"; instead: {status.renamed_to}" if status.renamed_to else "")


def _shown(name: str, value: Any) -> str:
    return name if value is True else f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"


def has_one_compilation_argument(argv: list[str]) -> bool:
    """Whether the compilation config is said at most once, in any spelling: the rule that every rendering keeps."""
    return sum(re.match(r"(--compilation-config|-cc|-O(?!\d))\b", word) is not None for word in argv) <= 1 and (
        argv.count(COMPILATION) <= 1
    )
