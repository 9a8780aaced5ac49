"""The advisor's end of the guard (guard.py): start a program, see whether it lives, end it with all it started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import psutil

from advisor.launch.guard import TRACKER_S, but_trackers, clear

GUARD = Path(__file__).with_name("guard.py")
# How long the guard may take beyond the ladder's own waits (its KILL_WAIT_S included) before it counts as stuck.
GUARD_SLACK_S = 30.0
KILLED = -int(signal.SIGKILL)


@dataclass(frozen=True)
class Grace:
    """Waits of the stop ladder. An idle vLLM ends within 2 s on a CPU; on a GPU it takes up to 15 s and then kills its own
    processes. A measured server holds nothing that is worth so much GPU time, and one under load can hang.
    """

    leader_s: float = 5.0  # after SIGTERM to the server's first process
    group_s: float = 2.0  # after SIGTERM to its whole group, before SIGKILL to everything


class Guard(Protocol):
    """What is needed of a running guard.py: subprocess.Popen's part of that name, or warm.py's for a forked one."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


def executed_guard() -> Guard:
    """A guard that executes its server. It gets no environment of its own: what it needs is in its first line."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={},
        cwd="/",
    )


class GuardedProcess:
    """A program in its own session, with its output in a file, that cannot outlive the advisor.

    `scratch` is a folder that exists as long as the program and goes with it, whatever ends either. `guard` starts the guard;
    what kind of guard it is decides whether the program is executed or forked (warm.py).
    `started` is the monotonic time of the exec. Raises OSError if the guard cannot be started; a program that cannot be
    executed shows as exit code 127 with the cause in the log.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        grace: Grace,
        scratch: str | None = None,
        guard: Callable[[], Guard] = executed_guard,
    ):
        self.grace = grace
        self.left: list[int] | None = None  # pids that outlived the stop; None: the guard has not said yet
        self.stubborn: list[int] = []  # pids that an orderly server left behind, and that did not end at SIGTERM either
        self._exit_code: int | None = None
        self._rest = b""
        self._closed = False
        self._scratch = scratch
        self._guard = guard()
        # The guard's own directory is /, so what it is told must not be relative.
        order = {"argv": list(argv), "env": dict(env), "cwd": str(cwd.resolve()), "log": str(log.resolve())}
        order["scratch"] = scratch
        self.started = time.monotonic()
        try:
            self._tell({**order, "leader_grace_s": grace.leader_s, "group_grace_s": grace.group_s})
            self.pid = self._first_pid()
        except BaseException:
            self._give_up()
            raise

    @property
    def guard_pid(self) -> int:
        return self._guard.pid

    def exit_code(self, wait_s: float = 0.0) -> int | None:
        """None while the program's first process lives; minus the signal's number if a signal ended it.

        `wait_s`: how long the guard may take to tell of an end that has been noticed otherwise.
        """
        self._listen(0.0 if self._exit_code is not None else wait_s)
        if self._exit_code is None and self._guard.poll() is not None:
            self._exit_code = KILLED  # the kernel ends the server when somebody kills the guard
        return self._exit_code

    def processes(self) -> list[psutil.Process]:
        """The program and everything it started, also what moved to another group or session."""
        found: dict[int, psutil.Process] = {}
        try:
            found = {child.pid: child for child in psutil.Process(self._guard.pid).children(recursive=True)}
        except psutil.NoSuchProcess:
            found = {process.pid: process for process in session_members(self.pid)}
        return [process for process in found.values() if _living(process)]

    def cpu_s(self) -> float:
        """CPU seconds of the living processes together, in user and kernel mode."""
        total_s = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total_s += times.user + times.system
        return total_s

    def stop(self) -> list[int]:
        """Run the ladder to its end; returns the pids that are still there (normally none). May be called twice.

        Ctrl-C meanwhile skips the remaining waits (SIGKILL at once) and is raised again when all is over.
        """
        interrupt: KeyboardInterrupt | None = None
        word = "stop"
        while self._guard.poll() is None and self.left is None:
            try:
                self._tell(word)
                self._wait_for_guard()
                break
            except KeyboardInterrupt as caught:
                interrupt, word = caught, "kill"
        self._discard_guard()
        if interrupt is not None:
            raise interrupt
        assert self.left is not None
        return self.left

    def _first_pid(self) -> int:
        while self._listen(GUARD_SLACK_S):
            if self._pid is not None:
                return self._pid
        raise OSError("the process guard did not start the server")

    _pid: int | None = None

    def _tell(self, value: object) -> None:
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(json.dumps(value).encode() + b"\n")
            self._guard.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: poll() tells

    def _listen(self, timeout_s: float) -> bool:
        """Take in what the guard says; False when nothing came within the timeout or it has closed its end."""
        assert self._guard.stdout is not None
        if self._closed or not select.select([self._guard.stdout], [], [], timeout_s)[0]:
            return False
        chunk = os.read(self._guard.stdout.fileno(), 65536)
        self._closed = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._understand(json.loads(line))
        return not self._closed

    def _understand(self, message: dict) -> None:
        if "pid" in message:
            self._pid = message["pid"]
        if "exit" in message:
            self._exit_code = message["exit"]
        if "stubborn" in message:
            self.stubborn = message["stubborn"]
        if "left" in message:
            self.left = message["left"]

    def _wait_for_guard(self) -> None:
        deadline = time.monotonic() + self.grace.leader_s + self.grace.group_s + GUARD_SLACK_S
        while self.left is None and not self._closed and time.monotonic() < deadline:
            self._listen(max(0.0, deadline - time.monotonic()))

    def _give_up(self) -> None:
        """The start failed or was interrupted, when the guard may have begun: its input ends, and so it ends what it started."""
        try:
            _close(self._guard.stdin)
            self._wait_for_guard()
        finally:  # Ctrl-C once more included
            self._discard_guard()

    def _discard_guard(self) -> None:
        """Make sure that the guard is gone, and what it had to end and to remove: it may be killed, or stuck."""
        if self._guard.poll() is None and self.left is None:
            self._guard.kill()
        _close(self._guard.stdin)
        _close(self._guard.stdout)
        self._closed = True
        self._guard.wait()
        if self.left is None and self._pid is not None:
            self.left = kill_session(self._pid)
        clear(self._scratch)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def session_members(leader: int) -> list[psutil.Process]:
    """Processes of the session that `leader` began; it finds those whose parent is gone, but not those that left it."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                members.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return members


def kill_session(leader: int, timeout_s: float = GUARD_SLACK_S) -> list[int]:
    """SIGKILL to every member of a session until none is left, as the guard does it: resource trackers have some seconds from the
    end of the others on. Returns the pids that outlived it.
    """
    now = time.monotonic()
    deadline, tidied = now + timeout_s, now + TRACKER_S
    while members := [process for process in session_members(leader) if _living(process)]:
        now, most = time.monotonic(), but_trackers([process.pid for process in members])
        tidied = now + TRACKER_S if most else tidied
        for process in members:
            if process.pid in most or now > tidied:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        if now > deadline:
            return [process.pid for process in members]
        time.sleep(0.02)
    return []


def _living(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
