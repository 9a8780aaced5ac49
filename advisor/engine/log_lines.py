"""A server's log in the form that vLLM writes by default, whatever a person has made of it. Pure.

    (EngineCore pid=310) INFO 11-29 10:00:25 [cuda.py:482] Using FLASH_ATTN attention backend ...

Taken off: colours (VLLM_LOGGING_COLOR), what stands in front of that (VLLM_LOGGING_PREFIX, the name of a container), and JSON, one
object a line, as `--logging-config.formatter json` writes it from 0.32 on and VLLM_LOGGING_CONFIG_PATH can in any release.
JSON of vLLM's own format names the module and not the file: `vllm.platforms.cuda` is then taken for cuda.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_LEVELS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_HEAD = re.compile(rf"\b(?:{_LEVELS}) \d\d-\d\d \d\d:\d\d:\d\d \[")
_PROCESS = re.compile(r"\([^()]*\bpid=\d+[^()]*\)")
_PROCESSES = re.compile(r"\s*(?:\([^()]*\)\s*)*")
_STAMP = re.compile(r"(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_LONGEST_PREFIX = 200  # characters; further on it is a line that quotes another one
# Names that formatters give to the same thing; the first one that is there counts.
_MESSAGE, _LEVEL, _TIME = ("message", "msg", "event"), ("levelname", "level", "severity"), ("asctime", "timestamp", "time")
_FILE, _MODULE = ("filename", "fileinfo", "pathname", "file"), ("name", "logger", "module")
_TRACE = ("exc_info", "exception", "traceback", "stack_info")
_UNNAMED = ("MainProcess", "")


def plain_log(text: str) -> str:
    """The log as vLLM would have written it by default; lines that are in no known form stay as they are."""
    return "\n".join(part for line in _ANSI.sub("", text).splitlines() for part in _plain(line))


def _plain(line: str) -> list[str]:
    if line.endswith("}") and '"' in line and (record := _record(line)) is not None:
        return _written(*record)
    head = _HEAD.search(line[:_LONGEST_PREFIX])
    if head is None or head.start() == 0:
        return [line]
    processes = _PROCESS.findall(line[: head.start()])
    return ["".join(f"{one} " for one in processes) + line[head.start() :]]


def _record(line: str) -> tuple[str, Mapping[str, Any]] | None:
    """(the processes named before it, the record) where the line is one JSON object of a logger."""
    front = _PROCESSES.match(line)
    start = front.end() if front else 0
    if line[start : start + 1] != "{":
        return None
    try:
        found = json.loads(line[start:])
    except ValueError:
        return None
    return (line[:start].strip(), found) if isinstance(found, dict) and isinstance(_first(found, _MESSAGE), str) else None


def _written(front: str, record: Mapping[str, Any]) -> list[str]:
    head = _head(front, record)
    traces = [str(record[name]) for name in _TRACE if record.get(name)]
    return [head + line for part in (str(_first(record, _MESSAGE)), *traces) for line in part.splitlines() or [""]]


def _head(front: str, record: Mapping[str, Any]) -> str:
    name, pid = str(_first(record, ("vllm_process_name", "processName")) or ""), record.get("process", record.get("pid"))
    if not front and name not in _UNNAMED and isinstance(pid, int):
        front = f"({name} pid={pid})"
    level, stamp = str(_first(record, _LEVEL) or "").upper(), _STAMP.search(str(_first(record, _TIME) or ""))
    known = level in _LEVELS.split("|") and stamp is not None
    said = f"{level} {stamp[1]} {stamp[2]} " if known and stamp else ""
    return f"{front} {said}".lstrip() + f"[{_file(record)}:{_line(record)}] "


def _file(record: Mapping[str, Any]) -> str:
    if named := _first(record, _FILE):
        return str(named).replace("\\", "/").rpartition("/")[2].partition(":")[0]
    module = str(_first(record, _MODULE) or "").rpartition(".")[2]
    return f"{module}.py" if re.fullmatch(r"\w+", module) else "unknown.py"


def _line(record: Mapping[str, Any]) -> int:
    number = record.get("lineno", record.get("line"))
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)
