"""Why a launch failed, told from the exit code and the server's log. Pure, except for the exception that carries it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from advisor.engine.log_lines import plain_log
from advisor.launch.tracebacks import ARGPARSE, Raised, error_lines, read_line, root_cause
from advisor.records import Outcome

REASON_LENGTH = 400  # characters; an attention backend's list of reasons fits
ARGUMENTS_EXIT = 2  # argparse's exit code


class LaunchFailed(Exception):
    """A launch that came to nothing. Not a person's mistake (no AdvisorError): it is told to the search as an outcome.

    `retryable`: the surroundings are to blame (port taken, GPU in use), not the candidate's settings.
    """

    def __init__(
        self,
        outcome: Outcome,
        reason: str,
        log_lines: list[str] | None = None,
        log_path: Path | None = None,
        retryable: bool = False,
    ):
        super().__init__(f"{outcome.value}: {reason}")
        self.outcome = outcome
        self.reason = reason
        self.log_lines = log_lines or []
        self.log_path = log_path
        self.retryable = retryable


# ---------------------------------------------------------------- the outcome

_WRAPPED = re.compile(r"Worker failed with error ['\"](?P<cause>.*)['\"], please check", re.DOTALL)
_PYDANTIC_INPUT = re.compile(r" \[type=\w+, input_value=.*\]$")
_OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|No available memory for the cache blocks|larger than the available KV cache|"
    r"is larger than the maximum number of tokens that can be stored in KV cache|less than requested memory for kv|"
    r"Cannot allocate memory|CUBLAS_STATUS_ALLOC_FAILED|DefaultCPUAllocator: can't allocate",
    re.IGNORECASE,
)
_KV_CACHE = re.compile(r"cache blocks|KV cache|memory for kv", re.IGNORECASE)
_DIRTY_GPU = re.compile(r"on startup is less than desired \w+ memory utilization|Error in memory profiling")
_PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE|Errno 98\b", re.IGNORECASE)
_KERNEL_FAULT = re.compile(
    r"illegal memory access|illegal instruction|misaligned address|device-side assert|unspecified launch failure|"
    r"CUDA error|Segfault encountered|Segmentation fault|HIP error",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"not valid for|not support|unsupported|No valid |No common block size|validation error|"
    r"Unknown attention backend|Invalid |must be |cannot be used|not compatible|incompatible|is not allowed|"
    r"requires |only supports|mutually exclusive|should be consistent|unrecognized arguments|invalid choice",
    re.IGNORECASE,
)
_CONFIG_EXCEPTIONS = ("ValueError", "NotImplementedError", "ValidationError", "AssertionError", "TypeError", "KeyError")
# Functions of vLLM that are on the stack in each phase of a start, the most telling first.
_PHASES = (
    (r"capture|_warmup_and_capture", "while capturing CUDA graphs"),
    (r"initialize_kv_cache|_allocate_kv_cache|initialize_from_config", "while allocating the KV cache"),
    (r"warm_?up|_dummy_sampler_run|autotune", "while warming up"),
    (r"determine_available_memory|profile_run|_dummy_run", "while profiling memory"),
    (r"load_model|load_weights|create_weights", "while loading the model"),
    (r"execute_model|run_busy_loop|_process_engine_step", "while serving"),
)


def classify(exit_code: int | None, log_text: str, was_ready: bool = False) -> tuple[Outcome, str]:
    """The outcome and its reason in one line. exit_code as in subprocess; None if the process still lives."""
    cause = root_cause(log_text)
    reason = _reason(cause, exit_code, log_text)
    judged = f"{reason}\n{_native_fault(log_text)}"
    if _DIRTY_GPU.search(judged) or _PORT_TAKEN.search(judged):
        return Outcome.FAILED_TO_START, reason
    if _OUT_OF_MEMORY.search(judged):
        return Outcome.OUT_OF_MEMORY, _shorten(f"{_memory_phase(cause, reason, log_text)}: {reason}")
    if _KERNEL_FAULT.search(judged):
        phase = _phase(cause)
        return Outcome.CRASHED, _shorten(f"{phase}: {reason}" if phase else reason)
    if (number := _signal(exit_code, log_text)) and (cause is None or cause.is_wrapper):
        return Outcome.CRASHED, _signal_reason(number)
    if was_ready:
        return Outcome.CRASHED, reason
    if exit_code == ARGUMENTS_EXIT or (_is_config_error(cause) and _UNSUPPORTED.search(reason)):
        return Outcome.UNSUPPORTED, reason
    return Outcome.FAILED_TO_START, reason


def dirty_gpu(reason: str) -> bool:
    """Whether vLLM says that others changed the GPU's memory, or left less of it than it was told to use."""
    return bool(_DIRTY_GPU.search(reason))


def memory_changed(reason: str) -> bool:
    """Whether others' memory changed while vLLM measured its own: no setting can be the cause of that."""
    return "Error in memory profiling" in reason


def port_taken(reason: str) -> bool:
    return bool(_PORT_TAKEN.search(reason))


_COMPILE_CACHE = re.compile(
    r"failed to get the (?:hash|file path) of the compiled graph|corrupted compilation artifact|Compile cache file corrupted|"
    r"(?:No such file or directory|FileNotFoundError).*torch_(?:aot_)?compile(?:_cache)?/",
    re.IGNORECASE,
)
_UNREADABLE = ("EOFError", "UnpicklingError", "BadZipFile", "SyntaxError", "JSONDecodeError")
# Functions that read compiled code back: vLLM's own cache file, its artefacts, PyTorch's.
_CACHE_READERS = {"initialize_cache", "load_compiled_function", "_try_load_aot_compiled_fn"}


def compile_cache_broken(log_text: str) -> bool:
    """Whether a start failed on compiled code that an earlier one left behind; the settings may be fine.

    Messages of 0.9.0 to 0.33.0 (compilation/compiler_interface.py, decorators.py), and any unreadable file met by their readers.
    An earlier compilation that failed leaves such code, and its own error is hidden until the cache is empty (issue 18851).
    """
    cause = root_cause(log_text)
    if cause is None:
        return False
    name, functions = cause.exception.partition(":")[0].rpartition(".")[2], set(cause.functions)
    reading = functions & _CACHE_READERS or ("load" in functions and functions & {"profile_run", "_dummy_run"})
    return bool(_COMPILE_CACHE.search(cause.exception)) or (name in _UNREADABLE and bool(reading))


def _reason(cause: Raised | None, exit_code: int | None, log_text: str) -> str:
    if cause is not None:
        wrapped = _WRAPPED.search(cause.exception)
        return _shorten(wrapped["cause"] if wrapped else _plain(cause.exception))
    lines = [read_line(raw).text for raw in plain_log(log_text).splitlines()]
    refused = [found["message"] for text in lines if (found := ARGPARSE.match(text))]
    told = refused or [line for line in (_native_fault(log_text), *error_lines(log_text, 1)) if line]
    ended = "" if exit_code is None else f" (exit code {exit_code})"
    return _shorten(told[-1]) if told else f"the server ended without a word{ended}"


def _plain(exception: str) -> str:
    """Without the exception's module and without pydantic's copy of the input."""
    name, colon, message = exception.partition(":")
    return name.rpartition(".")[2] + colon + _PYDANTIC_INPUT.sub("", message)


def _native_fault(log_text: str) -> str:
    """What C++ and the interpreter write past the logger when they die."""
    marks = ("Fatal Python error", "Segfault encountered", "terminate called after throwing", "what():  CUDA error")
    return next((line.strip() for line in log_text.splitlines() if any(mark in line for mark in marks)), "")


def _is_config_error(cause: Raised | None) -> bool:
    if cause is None:
        return False
    name = cause.exception.partition(":")[0]
    return name.endswith(_CONFIG_EXCEPTIONS) or _WRAPPED.search(cause.exception) is not None


def _phase(cause: Raised | None) -> str:
    functions = " ".join(cause.functions) if cause else ""
    return next((phase for pattern, phase in _PHASES if re.search(pattern, functions)), "")


def _memory_phase(cause: Raised | None, reason: str, log_text: str) -> str:
    if _KV_CACHE.search(reason):
        return "no memory for the KV cache"
    phase = _phase(cause)
    if not phase and "Capturing CUDA graphs" in log_text and "Graph capturing finished" not in log_text:
        phase = "while capturing CUDA graphs"
    return f"out of memory {phase}".strip()


# ---------------------------------------------------------------- signals

_DEAD_PROCESSES = re.compile(r"Failed core proc\(s\): \{[^}]*?: -(?P<number>\d+)")


def _signal(exit_code: int | None, log_text: str) -> int | None:
    """The number of the signal that ended the server, or its engine process where the log says so."""
    if exit_code is not None and exit_code < 0:
        return -exit_code
    found = _DEAD_PROCESSES.search(log_text)
    return int(found["number"]) if found else None


def _signal_reason(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = ", perhaps by the kernel because memory ran out" if number == signal.SIGKILL else ""
    return f"ended by {name}{hint}"


# ---------------------------------------------------------------- for comparing


def signature(reason: str) -> str:
    """The reason without what differs from launch to launch: equal causes give equal signatures."""
    text = re.sub(r"0x[0-9a-fA-F]+", "<address>", reason)
    text = re.sub(r"(?<![\w<])/[\w.+@-]+(?:/[\w.+@-]*)*", "<path>", text)
    text = re.sub(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b", "<id>", text)
    text = re.sub(r"\d+(?:[.,]\d+)*", "<n>", text)
    return " ".join(text.split())


def _shorten(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= REASON_LENGTH else one_line[: REASON_LENGTH - 3] + "..."
