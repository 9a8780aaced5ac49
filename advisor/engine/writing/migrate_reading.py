"""What a command of a version says, as abstract settings: the spelling table read backwards, item by item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.options import ATTENTION, COMPILATION, ServeOptions
from advisor.engine.reading.option_tables import env_status
from advisor.engine.writing.spelling import Spelling, abstract
from advisor.engine.writing.spelling_table import OPTIMIZATION, Version
from advisor.errors import InputError

_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
# Variables of old versions that a decision or a key replaced: name -> (decision, or option and key).
_VARIABLES: dict[str, str | tuple[str, str]] = {
    "VLLM_ATTENTION_BACKEND": "attention_backend",
    "VLLM_FLASH_ATTN_VERSION": "flash_attention_version",
    "VLLM_USE_TRTLLM_ATTENTION": (ATTENTION, "use_trtllm_attention"),
}


@dataclass(frozen=True)
class Item:
    """One setting, and how the file writes it."""

    name: str  # a decision, an option or an environment variable
    value: Any
    written: str


def items_of(options: ServeOptions, env: Mapping[str, str], version: Version) -> tuple[list[Item], tuple[str, ...]]:
    """Settings of a command as this version reads it, and sentences about words that it ignores."""
    items: list[Item] = []
    notes: list[str] = []
    for name, value in env.items():
        _read_variable(name, value, version, items, notes)
    for name, value in options.values.items():
        if name == COMPILATION and isinstance(value, Mapping):
            _read_compilation(value, version, items)
        elif name == ATTENTION and isinstance(value, Mapping):
            _read_mapping(name, value, items)
        elif name == OPTIMIZATION and version < (0, 12) and str(value).isdigit():
            items.append(Item("compilation_mode", _mode(int(value)), f"-O{value}"))
        elif name == "--cuda-graph-sizes":
            items.append(_graph_sizes(value, version))
        elif name == "--disable-cascade-attn" and isinstance(value, bool):
            items.append(Item("cascade_attention", not value, _written(name, value)))
        else:
            # Nothing comes of an empty configuration, which vLLM does not see either.
            items += [Item(single, item, _written(name, value)) for single, item in abstract({name: value}).items()]
    kept = _without_beaten(items, notes)
    _check_said_once(kept)
    return kept, tuple(notes)


def _check_said_once(items: list[Item]) -> None:
    said: dict[str, Item] = {}
    for item in items:
        other = said.setdefault(item.name, item)
        if other.value != item.value and not isinstance(item.value, Mapping):
            raise InputError(f"{other.written} and {item.written} disagree: vLLM refuses both together", "keep one")


def _read_variable(name: str, value: str, version: Version, items: list[Item], notes: list[str]) -> None:
    written = f"{name}={value}"
    target = _VARIABLES.get(name)
    if target is None:
        items.append(Item(name, value, written))
    elif not env_status(name, version).exists:
        notes.append(f"{written} is left out: this vLLM does not read it")
    elif isinstance(target, str):
        items.append(Item(target, int(value) if value.isdigit() else value.removesuffix("_VLLM_V1"), written))
    else:
        items.append(Item(target[0], {target[1]: value.lower() in ("1", "true")}, written))


def _without_beaten(items: list[Item], notes: list[str]) -> list[Item]:
    """0.13 and 0.14 refuse the backend's variable beside the flag and let it win over the configuration key."""
    by_variable = {item.name for item in items if item.written.startswith("VLLM_")}
    kept: list[Item] = []
    for item in items:
        decided = [other for other in items if other.name == item.name and other is not item]
        if item.name in by_variable and decided and not item.written.startswith("VLLM_"):
            if item.written.startswith("--attention-backend"):
                raise InputError(
                    f"{decided[0].written} and {item.written}: this vLLM refuses both together", "keep one"
                )
            notes.append(f"{item.written} is left out: {decided[0].written} wins over it in this version")
            continue
        kept.append(item)
    return kept


def _read_compilation(config: Mapping[str, Any], version: Version, items: list[Item]) -> None:
    rest = dict(config)
    if "level" in rest and version < (0, 18):
        level = rest.pop("level")
        value = _mode(int(level)) if str(level).isdigit() else level
        if "mode" not in rest:
            items.append(Item("compilation_mode", value, _written(COMPILATION, {"level": level})))
    graphs = {
        key: rest.pop(key) for key in ("use_cudagraph", "full_cuda_graph") if key in rest and version < (0, 11, 2)
    }
    if "cudagraph_mode" not in rest and (mode := _graph_mode(graphs, version)):
        items.append(Item("cudagraph_mode", mode, _written(COMPILATION, graphs)))
    if rest.get("use_inductor") is True:  # the default wherever the key exists
        del rest["use_inductor"]
    _read_mapping(COMPILATION, rest, items)


def _graph_mode(graphs: Mapping[str, Any], version: Version) -> str | None:
    if graphs.get("full_cuda_graph"):
        return "FULL"
    if graphs.get("use_cudagraph") is False and version > (0, 9, 1):
        return "NONE"
    return "PIECEWISE" if graphs else None


def _read_mapping(name: str, config: Mapping[str, Any], items: list[Item]) -> None:
    """One item for each key that is a decision, one for all other keys together."""
    rest: dict[str, Any] = {}
    for key, value in config.items():
        ((single, item),) = abstract({name: {key: value}}).items()
        if single == name:
            rest[key] = value
        else:
            items.append(Item(single, item, _written(name, {key: value})))
    if rest:
        items.append(Item(name, rest, _written(name, rest)))


def _graph_sizes(value: Any, version: Version) -> Item:
    """Up to 0.11.0 one number is the maximum; later, and for several numbers, it is the list."""
    given = [int(item) for item in (value if isinstance(value, list) else [value])]
    written = "--cuda-graph-sizes " + " ".join(map(str, given))
    if len(given) == 1 and version < (0, 11, 2):
        return Item("max_cudagraph_capture_size", given[0], written)
    return Item("cudagraph_capture_sizes", given, written)


def _mode(level: int) -> str:
    if level >= len(_MODES):
        raise InputError(f"compilation level {level} is not known", "levels are 0 to 3")
    return _MODES[level]


def _written(name: str, value: Any) -> str:
    return " ".join(Spelling(ServeOptions({name: value})).argv())
