"""Which launches come out of a launcher (launcher.py), and which launcher that is.

One launcher serves many launches, of which any number may run at a time. It imports vLLM for the first launch that it may serve,
or was begun before that one, and is started anew when it has died, or when what all launches share has changed. It is never needed:
`ColdStart` says why a launch has to be executed instead.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from advisor.launch.launcher import STUCK, Launcher, LauncherGone
from advisor.launch.process import Grace, GuardedProcess
from advisor.launch.warm_choice import MODULE, command_refusal, environment_refusal, machine_refusal

DEATHS = 2  # of launchers, and starts that failed only when forked, before a study goes on without


class ColdStart(Exception):
    """This launch has to be executed, and why. `told`: the same was said before, of an earlier launch."""

    def __init__(self, why: str, told: bool = False):
        super().__init__(why)
        self.told = told


class WarmLauncher:
    """Forked processes for the launches of a study, from launchers that live as long as they are of use.

    `kind`: of the GPU, as in GpuFacts. `env`: variables that all launches of the study have. `log`: takes what launchers write.
    `waiting(what)` is told of an import that is waited for. `begun`: a launcher that imports already; it is used where it has the
    environment of the first launch, and ended otherwise.
    """

    def __init__(
        self,
        python: str,
        architecture: str | None,
        kind: str,
        env: Mapping[str, str],
        log: Path,
        waiting: Callable[[str], None] = lambda _what: None,
        begun: Launcher | None = None,
    ):
        self._python, self._architecture, self._env = python, architecture, dict(env)
        self._log, self._waiting = log, waiting
        self._off = machine_refusal(sys.platform, platform.release(), kind)
        self._told: set[str] = set()
        self._failures: list[str] = []
        self._launcher = begun
        if begun is not None:
            begun.log = log
        self.waited_s = 0.0  # by the last launch, for an import
        self.import_s = 0.0  # of a core that this import took in all, part of it before that launch where it was begun ahead

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
        self.waited_s, self.import_s, shared = 0.0, 0.0, {**shared, **self._env}
        if self._off is None and (why := command_refusal(argv, self._python)):
            raise self._cold(why)
        while self._off is None:
            try:
                launcher = self._running(shared, argv)
                if why := environment_refusal(launcher.env, env, launcher.facts["used"]):
                    raise self._cold(why)
                return GuardedProcess(argv, env, cwd, log, grace, scratch, guard=launcher.guard)
            except LauncherGone as gone:
                self._lost(f"the launcher cannot be used: {gone}")
            except OSError as error:  # its guard ended before the server began
                self._lost(f"the launcher could not fork a server: {error}")
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
        """The launcher, ready. Raises LauncherGone."""
        self._part_with_another_environment(shared)
        while self._launcher is None or not self._launcher.facts:
            begun = time.monotonic()
            try:
                self._import(shared, argv)
            finally:
                self.waited_s += time.monotonic() - begun
            self._part_with_another_environment(shared)  # what its imports read is known only now
        return self._launcher

    def _import(self, shared: Mapping[str, str], argv: tuple[str, ...]) -> None:
        if self._launcher is None:
            self._launcher = Launcher(self._python, self._architecture, shared, self._log, argv[len(MODULE) + 1 :])
        self._launcher.wait(lambda: self._waiting("the launcher's imports"))
        self.import_s = self._launcher.import_s

    def _part_with_another_environment(self, shared: Mapping[str, str]) -> None:
        """Another cache than before, as a rule."""
        launcher = self._launcher
        if launcher is not None and environment_refusal(launcher.env, shared, launcher.facts.get("used", ())):
            self.close()

    def _lost(self, why: str, certain: bool = False) -> None:
        self.close()
        self._failures.append(why)
        if certain or len(self._failures) >= DEATHS or self._hopeless(why):
            self._off = why

    def _hopeless(self, why: str) -> bool:
        """A repeat says the same where vLLM has no such modules, one that must not be left out does harm, or a disk is slow."""
        return "cannot be imported" in why or " importing " in why or STUCK in why

    def _cold(self, why: str) -> ColdStart:
        told, _ = why in self._told, self._told.add(why)
        return ColdStart(why, told)


def shared_environment(env: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables of one command."""
    return {name: value for name, value in env.items() if name not in own}
