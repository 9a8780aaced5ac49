"""Finds the traceback to blame in a server's log, where several processes write and report each failure many times."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

from advisor.engine.log_lines import plain_log

# "(EngineCore_DP0 pid=17) ERROR 11-29 23:16:04 [core.py:133] text"; the process is missing in the oldest releases and
# in what is written past the logger, the level in plain output.
_LINE = re.compile(
    r"^(?:\((?P<process>[^()]*?) ?pid=\d+[^()]*\) ?)*"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]+:\d+\] ?)?(?P<text>.*)$"
)
EXCEPTION = re.compile(r"^(?P<name>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Dead)): ?(?P<message>.*)$")
BARE_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception)$")
ARGPARSE = re.compile(r"^[\w.-]+(?: [\w.-]+)*: error: (?P<message>.*)$")
_TRACEBACK = "Traceback (most recent call last):"
_CAUSED = "The above exception was the direct cause of the following exception:"
_HANDLING = "During handling of the above exception, another exception occurred:"

# Lines with which a process of vLLM announces the traceback that ends it.
FATAL = (
    "EngineCore failed to start",
    "EngineCore encountered a fatal error",
    "EngineCore hit an exception",
    "WorkerProc failed to start",
    "WorkerProc hit an exception",
    "AsyncLLM output_handler failed",
)
# Exceptions that only report that another process failed.
_WRAPPERS = (
    "Engine core initialization failed",
    "Engine core proc",
    "Frontend process failed",
    "WorkerProc initialization failed",
    "EngineCore encountered an issue",
    "EngineCore failed to start",
    "Executor failed",
    "cancelled",
)


@dataclass(frozen=True)
class Line:
    process: str
    level: str
    text: str


@dataclass
class Raised:
    """One traceback: its exception, the functions on its stack, and the line that announced it."""

    process: str
    level: str
    announced: bool
    exception: str = ""
    functions: list[str] = field(default_factory=list)
    then: str = ""  # how the next traceback of the process goes on from this one

    @property
    def is_wrapper(self) -> bool:
        return any(mark in self.exception for mark in _WRAPPERS)


def read_line(line: str) -> Line:
    """Of a log as plain_log gives it."""
    found = _LINE.match(line.rstrip())
    assert found is not None  # every part of the pattern may be empty
    return Line(found["process"] or "", found["level"] or "", found["text"])


def tracebacks(log_text: str) -> list[Raised]:
    """The tracebacks in the order in which they begin; lines of other processes between their lines do not matter."""
    found: list[Raised] = []
    current: dict[str, Raised] = {}
    announced: dict[str, bool] = {}
    for raw in plain_log(log_text).splitlines():
        line = read_line(raw)
        open_one = current.get(line.process)
        if line.text == _TRACEBACK:
            current[line.process] = Raised(line.process, line.level, announced.pop(line.process, False))
            found.append(current[line.process])
        elif open_one is None:
            announced[line.process] = any(mark in line.text for mark in FATAL) or announced.get(line.process, False)
        elif not _take(open_one, line.text):
            del current[line.process]
    return [raised for raised in found if raised.exception]


def _take(raised: Raised, text: str) -> bool:
    """Add a line to a traceback; False when the line no longer belongs to it."""
    if not raised.exception:
        if frame := re.match(r'\s+File ".*", line \d+, in (\S+)', text):
            raised.functions.append(frame[1])
        elif EXCEPTION.match(text) or BARE_EXCEPTION.match(text):
            raised.exception = text
        return True
    if text in (_CAUSED, _HANDLING):
        raised.then = text
        return False
    if text.startswith("  ") and not text.lstrip().startswith("For further information"):
        raised.exception += " " + text.strip()
    return text == "" or text.startswith("  ")


def root_cause(log_text: str) -> Raised | None:
    """The traceback to blame: the first that a dying process announced, else the last; down to what caused it."""
    chains = _chains([raised for raised in tracebacks(log_text) if raised.level not in ("WARNING", "INFO", "DEBUG")])
    roots = [_root(chain) for chain in chains]
    telling = [root for root in roots if not root.is_wrapper]
    announced = [root for root in telling if root.announced]
    labelled = [root for root in telling if root.level]
    if announced or labelled:
        return (announced or labelled)[0]
    return (telling or roots or [None])[-1]


def _chains(raised: list[Raised]) -> list[list[Raised]]:
    chains: list[list[Raised]] = []
    for one in raised:
        last = next((chain for chain in reversed(chains) if chain[-1].process == one.process), None)
        if last is not None and last[-1].then:
            last.append(one)
        else:
            chains.append([one])
    return chains


def _root(chain: list[Raised]) -> Raised:
    """`raise B from A` means A is to blame; an error met while handling another one says more than that other one."""
    root = chain[0]
    for earlier, later in itertools.pairwise(chain):
        if earlier.then == _HANDLING:
            root = later
    root.announced = root.announced or chain[0].announced
    root.functions = [name for raised in chain for name in raised.functions]
    return root


def error_lines(log_text: str, limit: int = 12) -> list[str]:
    """The lines to show: exceptions and error messages without stacks and repeats; the log's end if it has none."""
    lines = [read_line(raw) for raw in plain_log(log_text).splitlines()]
    errors = [line.text.strip() for line in lines if _is_error(line)]
    shown = errors or [text for line in lines if (text := line.text.strip()) and not _is_noise(text)]
    return list(dict.fromkeys(shown))[-limit:]


def _is_error(line: Line) -> bool:
    if EXCEPTION.match(line.text) or BARE_EXCEPTION.match(line.text) or ARGPARSE.match(line.text):
        return True
    in_stack = line.text.startswith(" ") or line.text in ("", _TRACEBACK, _CAUSED, _HANDLING)
    return line.level in ("ERROR", "CRITICAL") and not in_stack


def _is_noise(text: str) -> bool:
    """What Python and its extension modules write at any exit, good or bad."""
    return text.startswith(("nanobind", "- leaked", "- ...", "warnings.warn", "See https://")) or "UserWarning" in text
