"""The launcher that servers are forked from (target/warm_serve.py), and its end of the talk.

One launcher serves many launches, of which any number may run at a time. It imports vLLM for the first launch that it may serve,
and is started anew when it has died, or when what all launches share has changed. It is never needed: `ColdStart` says why a launch
has to be executed instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import psutil

from advisor.launch.process import GUARD, Grace, GuardedProcess
from advisor.launch.warm_choice import MODULE, command_refusal, environment_refusal, machine_refusal
from advisor.target_process import script_path

IMPORT_S = 600.0  # of vLLM, from a slow disk
ANSWER_S = 30.0  # a fork takes milliseconds
LEAVE_S = 5.0  # an idle launcher leaves when its socket ends; one that imports looks at it after each module
DEATHS = 2  # of launchers, and starts that failed only when forked, before a study goes on without
POLL_S = 0.02


class ColdStart(Exception):
    """This launch has to be executed, and why. `told`: the same was said before, of an earlier launch."""

    def __init__(self, why: str, told: bool = False):
        super().__init__(why)
        self.told = told


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
    """One running launcher. `argv`: what follows `serve` in a typical command, for what only shows there.

    Raises LauncherGone, from the start on, where it is of no use.
    """

    def __init__(
        self,
        python: str,
        architecture: str | None,
        env: Mapping[str, str],
        log: Path,
        waiting: Callable[[], None] = lambda: None,
        argv: tuple[str, ...] = (),
    ):
        self.env = dict(env)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"argv": argv, "architecture": architecture, "guard": str(GUARD.resolve()), "without": []}
        self._socket = ours
        try:
            with theirs, log.open("ab") as output:
                argv = [python, str(script_path("warm_serve")), json.dumps(request)]
                self._process = subprocess.Popen(
                    argv, stdin=theirs, stdout=output, stderr=output, env=self.env, start_new_session=True
                )
        except OSError as error:
            ours.close()
            raise LauncherGone(f"{python} cannot be started: {error.strerror}") from None
        try:
            self.facts = self._ready(waiting)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def guard(self) -> ForkedGuard:
        """A new guard, forked. Raises LauncherGone."""
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

    def close(self) -> None:
        """End it. Its servers, if any, have guards of their own and go on."""
        self._socket.close()
        for end in (lambda: None, self._process.terminate, self._process.kill):
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LEAVE_S)
                return

    def _ready(self, waiting: Callable[[], None]) -> dict[str, Any]:
        waiting()
        answer = self._receive(IMPORT_S)
        if "ready" not in answer:
            raise LauncherGone(answer.get("unfit", "it answers what was not asked"))
        return answer["ready"]

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            raise LauncherGone(f"no answer within {timeout_s:g} s") from None
        except OSError:
            data = b""
        if not data:
            raise LauncherGone(self._death())
        return json.loads(data)

    def _death(self) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        return f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


class WarmLauncher:
    """Forked processes for the launches of a study, from launchers that live as long as they are of use.

    `kind`: of the GPU, as in GpuFacts. `env`: variables that all launches of the study have. `log`: takes what launchers write.
    `waiting(what)` is told of an import that is waited for.
    """

    def __init__(
        self,
        python: str,
        architecture: str | None,
        kind: str,
        env: Mapping[str, str],
        log: Path,
        waiting: Callable[[str], None] = lambda _what: None,
    ):
        self._python, self._architecture, self._env = python, architecture, dict(env)
        self._log, self._waiting = log, waiting
        self._off = machine_refusal(sys.platform, platform.release(), kind)
        self._told: set[str] = set()
        self._failures: list[str] = []
        self._launcher: Launcher | None = None
        self.import_s = 0.0  # that the last launch waited for an import

    @property
    def facts(self) -> dict[str, Any]:
        """What the running launcher says of itself; empty where there is none."""
        return self._launcher.facts if self._launcher else {}

    @property
    def pid(self) -> int | None:
        return self._launcher.pid if self._launcher else None

    def process(
        self,
        argv: tuple[str, ...],
        shared: Mapping[str, str],
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        grace: Grace,
        scratch: str | None = None,
    ) -> GuardedProcess:
        """A server forked and not executed. `shared`: its environment without the command's own variables. Raises ColdStart."""
        self.import_s, shared = 0.0, {**shared, **self._env}
        if self._off is None and (why := command_refusal(argv, self._python)):
            raise self._cold(why)
        while self._off is None:
            try:
                launcher = self._running(shared, argv)
                if why := environment_refusal(launcher.env, env, launcher.facts["used"]):
                    raise self._cold(why)
                return GuardedProcess(argv, env, cwd, log, grace, scratch, guard=launcher.guard)
            except LauncherGone as gone:
                self._lost(f"the launcher is of no use: {gone}")
            except OSError as error:  # its guard ended before the server began
                self._lost(f"the launcher forked in vain: {error}")
        raise self._cold(self._off)

    def blame(self, why: str, certain: bool) -> None:
        """A server did not start when forked, and did when executed. `certain`: its log says that the fork was to blame."""
        self._lost(f"a server started only when it was not forked: {why}", certain)

    def close(self) -> None:
        """End the launcher. Servers that run are not touched. May be called more than once."""
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            launcher.close()

    def _running(self, shared: Mapping[str, str], argv: tuple[str, ...]) -> Launcher:
        if self._launcher is not None and environment_refusal(self._launcher.env, shared, self._launcher.facts["used"]):
            self.close()  # another cache than before, as a rule
        if self._launcher is None:
            begun = time.monotonic()
            try:
                self._launcher = Launcher(
                    self._python,
                    self._architecture,
                    shared,
                    self._log,
                    lambda: self._waiting("the launcher's imports"),
                    argv[len(MODULE) + 1 :],
                )
            finally:
                self.import_s += time.monotonic() - begun
        return self._launcher

    def _lost(self, why: str, certain: bool = False) -> None:
        self.close()
        self._failures.append(why)
        if certain or len(self._failures) >= DEATHS or self._hopeless(why):
            self._off = why

    def _hopeless(self, why: str) -> bool:
        """A repeat says the same where vLLM has no such modules, or one that cannot be left out is in the way."""
        return "cannot be imported" in why or " importing " in why

    def _cold(self, why: str) -> ColdStart:
        told, _ = why in self._told, self._told.add(why)
        return ColdStart(why, told)


def shared_environment(env: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables of one command."""
    return {name: value for name, value in env.items() if name not in own}
