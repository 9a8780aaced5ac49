"""One process that imports vLLM and forks guards (target/warm_serve.py): the advisor's end of the talk with it.

It begins to import when it is made, and goes on while the advisor does something else, until `wait` asks whether it is ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import psutil

from advisor.launch.process import GUARD
from advisor.target_process import end_group, script_path, wait_without_reaping

IMPORT_S = 600.0  # of vLLM, from a slow disk
STUCK = "its imports did not end"  # another launcher's would not either (warm.py)
ANSWER_S = 30.0  # a fork takes milliseconds
LEAVE_S = 5.0  # an idle launcher leaves when its socket ends; one that imports is ended by that
ENDED_S = 5.0  # from the end of its socket until its exit code is there, on a busy machine
POLL_S = 0.02


class LauncherGone(Exception):
    """The launcher ended, or does not answer."""


class ForkedGuard:
    """A guard that the launcher forked: what process.py needs of a child, of a process that is none."""

    def __init__(self, pid: int, stdin: int, stdout: int):
        self.pid = pid
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb", buffering=0)
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    def poll(self) -> int | None:
        """None while it runs; its own exit code is its parent's business, and nobody's question."""
        try:
            alive = self._process is not None and self._process.is_running()
            return None if alive and self._process.status() != psutil.STATUS_ZOMBIE else 0
        except psutil.NoSuchProcess:
            return 0

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.kill()

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(POLL_S)
        return 0


class Launcher:
    """One launcher, which begins at once. `argv`: what follows `serve` in a typical command, for what only shows there.

    `facts`: what it says of itself when it is ready, empty until then; `import_s`: seconds that it took to get there,
    without those in which it waited for a disk or for a core that others had: servers that import later find files read and cores.
    `log` takes what it prints; where it is given later, what was printed before as well: a launcher may begin before there is a
    place for it. Raises LauncherGone, from the start on, where it is of no use.
    """

    def __init__(
        self,
        python: str,
        architecture: str | None,
        env: Mapping[str, str],
        log: Path | None = None,
        argv: tuple[str, ...] = (),
    ):
        self.env, self.log = dict(env), log
        self.facts: dict[str, Any] = {}
        self.import_s, self._begun = 0.0, time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"argv": argv, "architecture": architecture, "guard": str(GUARD.resolve()), "without": []}
        self._socket, self._kept = ours, 0
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        command = [python, str(script_path("warm_serve")), json.dumps(request)]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command, stdin=theirs, stdout=self._said, stderr=self._said, env=self.env, start_new_session=True
                )
        except OSError as error:
            ours.close()
            self._said.close()
            raise LauncherGone(f"{python} cannot be started: {error.strerror}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def guard(self) -> ForkedGuard:
        """A new guard, forked, when it is ready: before, whatever it is sent would end it. Raises LauncherGone."""
        self.wait()
        order_read, order_write = os.pipe()
        word_read, word_write = os.pipe()
        try:
            try:
                socket.send_fds(self._socket, [b'{"fork": true}'], [order_read, word_write])
            except OSError:
                raise LauncherGone(self._death()) from None
            finally:
                os.close(order_read)
                os.close(word_write)
            answer = self._receive(ANSWER_S)
            if "guard" not in answer:
                raise LauncherGone(answer.get("refused", "it answers what was not asked"))
        except BaseException:
            os.close(order_write)
            os.close(word_read)
            raise
        return ForkedGuard(answer["guard"], order_write, word_read)

    def wait(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Until it is ready; `waiting` is told where it is not yet. Raises LauncherGone."""
        if self.facts:
            return
        if not select.select([self._socket], [], [], 0.0)[0]:
            waiting()
        try:
            answer = self._receive(IMPORT_S, STUCK)
        finally:
            self._keep_log()
        if "ready" not in answer:
            raise LauncherGone(answer.get("unfit", "it answers what was not asked"))
        self.facts = answer["ready"]
        self.import_s = max(min(self.facts["at"] - self._begun, self.facts["cpu_s"]), 0.0)

    def close(self) -> None:
        """End it, and what its imports started. Its servers, if any, have guards and sessions of their own and go on. May be called
        more than once.
        """
        self._socket.close()
        if self._process.returncode is None:
            end_group(self._process, LEAVE_S)
        self._keep_log()
        self._said.close()

    def _keep_log(self) -> None:
        """What it printed since the last time. Read without moving the place where it writes, which both have in common."""
        if self.log is None or self._said.closed:
            return
        with contextlib.suppress(OSError), self.log.open("ab") as log:
            while said := os.pread(self._said.fileno(), 1 << 20, self._kept):
                log.write(said)
                self._kept += len(said)

    def _receive(self, timeout_s: float, silent: str = "no answer") -> dict[str, Any]:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            raise LauncherGone(f"{silent} within {timeout_s:g} s") from None
        except OSError:
            data = b""
        if not data:
            raise LauncherGone(self._death())
        return json.loads(data)

    def _death(self) -> str:
        """Its end is not collected here: until `close` has ended its group, nobody else may get its number."""
        code = self._process.returncode
        code = wait_without_reaping(self._process, ENDED_S) if code is None else code
        if code is None:
            return "it closed its socket"
        return f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
