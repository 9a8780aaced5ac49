"""A script of `advisor/target/` running in the target interpreter, spoken to in JSON lines. Imports only errors.

One line on the script's standard input is a request, one line on its standard output is the answer, the end of its
input tells it to leave. Its standard error (where vLLM's own log lines go) is kept in a file, to explain a crash with.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from advisor.errors import EnvironmentMismatch

SCRIPTS = Path(__file__).parent / "target"
BEGIN = SCRIPTS / "begin.py"  # runs a script so that it ends with the advisor

# These name folders and change nothing of what runs: without them every launch would compile and download anew.
_KEPT = ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_ASSETS_CACHE")
_ALWAYS = {"VLLM_NO_USAGE_STATS": "1"}
_IDLE_GRACE_S = 5.0  # an idle script leaves as soon as its input ends
_BUSY_GRACE_S = 0.3  # one in the middle of a request, or of its imports, does not look at its input
_TERM_GRACE_S = 3.0
_ENDED_S = 5.0  # from the end of its output until its exit code is there, on a busy machine
_SHOWN_LINES = 8


class TargetDied(EnvironmentMismatch):
    """The target process ended without an answer. `last_lines` are the last lines of its standard error."""

    def __init__(self, problem: str, hint: str | None = None, last_lines: tuple[str, ...] = ()):
        super().__init__(problem, hint)
        self.last_lines = last_lines


class TargetTimeout(EnvironmentMismatch):
    """The target process did not answer in time; it has been ended."""


# ---------------------------------------------------------------- environment


def dropped_variables(inherited: Mapping[str, str]) -> tuple[str, ...]:
    """Names in the inherited environment that would change how vLLM runs and are therefore not handed on, sorted."""
    return tuple(sorted(name for name in inherited if _changes_vllm(name)))


def scrubbed_environment(inherited: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment for a target process: what is inherited minus `dropped_variables`, plus what is meant.

    A cluster that has a service called vllm sets VLLM_PORT=tcp://..., and a shell may hold a VLLM_ATTENTION_BACKEND
    from last week: neither may reach a server whose figures are compared.
    """
    kept = {name: value for name, value in inherited.items() if not _changes_vllm(name)}
    return {**kept, **_ALWAYS, **added}


def _changes_vllm(name: str) -> bool:
    return name == "TORCH_COMPILE_DISABLE" or (name.startswith("VLLM_") and name not in _KEPT and name not in _ALWAYS)


# ---------------------------------------------------------------- process


class TargetProcess:
    """Context manager: the script runs in a session of its own for the length of the block; nothing is left after.

    `env` is the whole environment (see `scrubbed_environment`). `log` takes the standard error; without it a temporary
    file does, which goes when the block ends. Raises EnvironmentMismatch where the interpreter cannot be started.
    """

    def __init__(self, python: str, script: Path | str, env: Mapping[str, str], log: Path | None = None):
        self._python = str(python)
        self._script = script_path(script)
        self._env = dict(env)
        self._log_path = log
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._alive: socket.socket | None = None  # its end, whatever brings it, ends the script's whole group (begin.py)
        self._buffer = b""
        self._busy = True  # until its first answer it may still be importing vLLM, for half a minute

    @property
    def pid(self) -> int | None:
        """Process id, which is the group's id too; None outside the block."""
        return self._process.pid if self._process else None

    def __enter__(self) -> TargetProcess:
        self._log = self._log_path.open("w+b") if self._log_path else tempfile.TemporaryFile()
        self._alive, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [self._python, str(BEGIN), str(theirs.fileno()), str(self._script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=self._env,
                start_new_session=True,
                bufsize=0,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            self._log.close()
            self._alive.close()
            raise _cannot_start(self._python, error) from error
        finally:
            theirs.close()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def request(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one request and wait for its answer, `timeout_s` at most. Raises TargetDied or TargetTimeout."""
        self.send(request)
        return self.receive(timeout_s)

    def send(self, request: Mapping[str, Any]) -> None:
        """Send one request without waiting: `receive` must follow. Raises TargetDied."""
        process = self._running()
        self._busy = True  # stays so where an exception, Ctrl-C included, leaves the request unanswered
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._died() from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The answer to what was sent. Raises TargetDied or TargetTimeout."""
        self._running()
        line = self._read_line(time.monotonic() + timeout_s, timeout_s)
        try:
            answer = json.loads(line)
        except ValueError:
            shown = line[:200].decode(errors="replace")
            raise TargetDied(f"{self._script.name} answered something else than JSON: {shown!r}") from None
        self._busy = False
        return answer

    def speaks(self, timeout_s: float) -> bool:
        """Whether within `timeout_s` it has begun an answer or ended, so that `receive` will not wait for long."""
        if self._process is None or self._buffer:
            return True
        poll = select.poll()
        poll.register(self._process.stdout.fileno(), select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """End the script and everything that it started. May be called more than once."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):  # already gone
            process.stdin.close()
        end_group(process, _BUSY_GRACE_S if self._busy else _IDLE_GRACE_S)
        process.stdout.close()
        self._alive.close()
        self._log.close()

    def last_lines(self, count: int = _SHOWN_LINES) -> tuple[str, ...]:
        """The last lines of the script's standard error that hold anything."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 64 * 1024))
        lines = self._log.read().decode(errors="replace").splitlines()
        return tuple(line.rstrip() for line in lines if line.strip())[-count:]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise TargetDied(f"{self._script.name} is not running any more")
        return self._process

    def _read_line(self, deadline: float, timeout_s: float) -> bytes:
        poll = select.poll()
        poll.register(self._process.stdout.fileno(), select.POLLIN)
        while b"\n" not in self._buffer:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                self.close()
                raise TargetTimeout(f"{self._script.name} in {self._python} gave no answer within {timeout_s:g} s")
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise self._died()
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _died(self) -> TargetDied:
        """Wait for the end of a process whose output has ended, so that its last words and its status are known."""
        code = wait_without_reaping(self._process, _ENDED_S)
        lines = self.last_lines()
        self.close()
        problem = f"{self._script.name} in {self._python} ended {_how(code)} without an answer"
        said = f": {lines[-1]}" if lines else ""
        return TargetDied(problem + said, "\n".join(lines[:-1]) or None, lines)


def script_path(script: Path | str) -> Path:
    """A bare word (`describe`) names a script of `advisor/target/`; anything else is a path."""
    named = SCRIPTS / f"{script}.py"
    return named if isinstance(script, str) and named.is_file() else Path(script)


# ---------------------------------------------------------------- ending


def end_group(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Grace, SIGTERM, SIGKILL for the whole group. The leader is reaped last: until then its id cannot be reused."""
    if wait_without_reaping(process, grace_s) is None:
        _signal_group(process.pid, signal.SIGTERM)
        wait_without_reaping(process, _TERM_GRACE_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def wait_without_reaping(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Status as Popen gives it (negative: the signal), None where the process still runs after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)


def _signal_group(group: int, signal_number: int) -> None:
    # Nothing left to signal is fine; a group that holds only a zombie answers EPERM on some systems.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal_number)


def _how(code: int | None) -> str:
    if code is None:
        return "its output"
    return f"with exit code {code}" if code >= 0 else f"by signal {-code}"


def _cannot_start(python: str, error: OSError) -> EnvironmentMismatch:
    known = {errno.ENOENT: "does not exist", errno.EACCES: "cannot be executed", errno.ENOEXEC: "is no program"}
    why = known.get(error.errno, f"cannot be started: {error.strerror}")
    hint = "give the Python of the environment that holds vLLM: --engine-python PATH"
    return EnvironmentMismatch(f"target interpreter {python} {why}", hint)
