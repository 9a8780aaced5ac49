"""One launched server as a with block: ready when the block begins, gone without a trace when it ends.

    with Server(command, served_name, folder, gpu, limits, on_event) as server:
        ...  # server.base_url answers completions for server.served_name

The server's current directory is the advisor's own: what the person passes on (a chat template, a config file) may be a
relative path and must mean the same as in their shell. `python -m` would put that directory first in the import path,
where a stray `inspect.py` or a checkout called `vllm` hides the real module; from Python 3.11 on PYTHONSAFEPATH
prevents it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from advisor.errors import AdvisorError
from advisor.launch import gpu_memory, gpu_room, ports
from advisor.launch.failure import LaunchFailed, classify, compile_cache_broken, dirty_gpu, memory_changed, port_taken
from advisor.launch.leftovers import SOCKETS, rendezvous_files, sockets_folder
from advisor.launch.process import Grace, GuardedProcess
from advisor.launch.readiness import NO_TIME, LaunchLimits, LogTail, Probe, Prober, Progress, Signs, complete, phase
from advisor.launch.redact import redact_argv, redact_env
from advisor.launch.stop import stop
from advisor.launch.tracebacks import error_lines
from advisor.launch.warm import ColdStart, WarmLauncher, shared_environment
from advisor.launch.warm_choice import COLD, WARM, fork_broken, may_be_the_fork
from advisor.records import Command, GpuFacts, Outcome
from advisor.target_process import scrubbed_environment

LOG = "server.log"
FIRST_LOG = "server-first-port.log"  # of an attempt whose port another process had
FIRST_CACHE_LOG = "server-first-cache.log"  # of an attempt that failed on compiled code which an earlier launch left
FORKED_LOG = "server-forked.log"  # of a forked server that did not start
COMMAND = "command.json"
PLUMBING = {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
FIRST_POLL_S, LAST_POLL_S = 0.02, 0.25  # the wait between two looks grows: a start takes from 0.2 s to half an hour
SIGNS_EVERY_S = 2.0  # CPU time of all processes and GPU memory are asked for this often at most
BAD_ANSWERS = 3  # completions answered without a token before a start counts as failed
# After these words of a dying server its process ends by itself, as a rule; seen waiting for over two minutes.
LAST_WORDS = ("EngineCore failed to start", "Engine core initialization failed")
LAST_WORDS_GRACE_S = 20.0
END_TOLD_S = 5.0  # from the moment when nobody listens any more until the guard has told of the process's end, at most
ALIVE_TIMEOUT_S = 120.0  # for one request of check_alive, which may queue behind others

OnEvent = Callable[[str, float], None]  # what the launch is doing now, seconds since the exec


class PortTaken(Exception):
    """Another process has the port: the launch is tried once more with another one."""


class GpuCrowded(Exception):
    """vLLM says that memory is missing or was changed by others: tried once more, unless they are still there."""


class CacheBroken(Exception):
    """The start failed on compiled code that was there before: tried once more with an empty cache."""


class Server:
    """Context manager. Raises LaunchFailed from the `with` line when the server does not get ready, and from
    check_alive; NotStopped or GpuMemoryHeld (AdvisorErrors) from the end of the block when something is left over, and
    GpuInUse where somebody else's GPU memory is in the way: no candidate is to blame for these, and the study ends.
    `usual`: MiB in use on each GPU before the study's first launch, which is nobody's fault later on. `caches`: variables
    that say where vLLM and what it uses keep compiled code; those of the command go first. `renew_caches`: makes empty ones, for
    a start that fails on broken ones; it is asked once at most. `retried` is told why a start was tried a second time, or was
    not the one that was wanted. `warm`: forks the server, where it can be forked; a start that fails is tried without it
    before the candidate is blamed.

    Set while the block runs: base_url, port, start_s (exec or fork to first token), launcher ("warm" or "cold"), launcher_s
    (seconds that were waited for the imports of the process which it was forked from), launcher_import_s (of a core that these
    imports took in all: they may have begun before), lost_s (seconds that went into starts that failed before), ends_at (when the
    launch has had its time, of time.monotonic()); after it: stop_s, and leftovers (processes that had to be killed although the
    server had ended).
    """

    def __init__(
        self,
        command: Command,
        served_name: str,
        folder: Path,
        gpu: GpuFacts,
        limits: LaunchLimits | None = None,
        on_event: OnEvent | None = None,
        grace: Grace | None = None,
        usual: gpu_memory.Usage | None = None,
        caches: Mapping[str, str] | None = None,
        renew_caches: Callable[[], Mapping[str, str]] | None = None,
        retried: Callable[[str], None] | None = None,
        warm: WarmLauncher | None = None,
    ):
        self.command = command
        self.served_name = served_name
        self.folder = folder
        self.log_path = folder / LOG
        self.port = 0
        self.start_s = 0.0
        self.stop_s: float | None = None
        self.leftovers: tuple[str, ...] = ()
        self._gpu = gpu
        self._limits = limits or LaunchLimits()
        self.ends_at = time.monotonic() + self._limits.whole_s
        self._on_event = on_event or (lambda _event, _at_s: None)
        self._grace = grace or Grace()
        self._api_key = option_value(command.argv, "--api-key")
        self._process: GuardedProcess | None = None
        self._prober: Prober | None = None
        self._engine: set[int] = set()
        self._known: set[int] = set()  # every pid that was seen to be the server's
        self._usual = usual
        self._caches = dict(caches or {})
        self._renew_caches, self._renewed = renew_caches, dict[str, str]()
        self._retried = retried or (lambda _why: None)
        self._warm = warm
        self.launcher, self.launcher_s, self.launcher_import_s, self.lost_s = COLD, 0.0, 0.0, 0.0

    @property
    def base_url(self) -> str:
        return f"http://{ports.HOST}:{self.port}"

    def __enter__(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        room = gpu_room.asked(self.command.argv)
        gpu_memory.wait_clean(
            self._gpu,
            room.share,
            self._usual,
            room.count,
            waiting=lambda: self._on_event("waiting for GPU memory", 0.0),
        )
        self._memory = gpu_memory.Watch(self._gpu)
        self._begun = time.monotonic()
        try:
            self._start()
        except LaunchFailed as failure:
            if self.launcher == COLD or failure.retryable or not may_be_the_fork(failure.outcome, self.log_text()):
                raise
            self._start_without_fork(failure)
        return self

    def _count_lost(self) -> None:
        """All that went into the start so far, when it begins anew; imports of the launcher have a count of their own."""
        self.lost_s = time.monotonic() - self._begun - self.launcher_s

    def _start_without_fork(self, forked: LaunchFailed) -> None:
        """A candidate is blamed for what a server of its own does. Only where that one starts, forking is."""
        certain, warm, self._warm = fork_broken(self.log_text()), self._warm, None
        self._count_lost()
        if self.log_path.exists():
            self.log_path.replace(self.folder / FORKED_LOG)
        self._retried(f"the start of a forked server failed, the second was not forked: {forked} (log: {FORKED_LOG})")
        self._start()
        assert warm is not None
        warm.blame(forked.reason, certain)

    def _start(self) -> None:
        try:
            self._launch()
        except (PortTaken, GpuCrowded, CacheBroken) as first:
            self._prepare_second(first)
            self._count_lost()
            try:
                self._launch(avoid=self.port)
            except (PortTaken, GpuCrowded) as again:
                self._check_alone(again)
                surroundings = isinstance(again, PortTaken) or memory_changed(str(again))
                raise self._failed(Outcome.FAILED_TO_START, str(again), surroundings) from None

    def _prepare_second(self, first: PortTaken | GpuCrowded | CacheBroken) -> None:
        """What was in the way is not there the second time; the first error is kept. Raises GpuInUse."""
        log = FIRST_CACHE_LOG if isinstance(first, CacheBroken) else FIRST_LOG
        if isinstance(first, CacheBroken) and self._renew_caches is not None:
            self._renewed, self._renew_caches = dict(self._renew_caches()), None
        else:
            self._check_alone(first)
        if self.log_path.exists():
            self.log_path.replace(self.folder / log)
        with_what = {CacheBroken: "an empty compile cache", PortTaken: "another port"}.get(
            type(first), "the memory free again"
        )
        self._retried(f"the first start failed, the second had {with_what}: {first} (log: {log})")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self._stop()
        except AdvisorError:
            if not isinstance(error, KeyboardInterrupt):  # a person who ends it all needs no other reason to end
                raise

    @property
    def pid(self) -> int | None:
        """The process that was launched: the API server, or the parent of several."""
        return self._process.pid if self._process else None

    def pids(self) -> list[int]:
        """The server's first process and all that it started."""
        return [process.pid for process in self._process.processes()] if self._process else []

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def check_alive(self, ask: bool = False) -> None:
        """Raises LaunchFailed (crashed or out of memory) if the server or its engine has died since it got ready; interrupted where
        the launch has had its time.

        An engine can die and leave an API server that still answers /health (vLLM issue 39863). So a process that is
        missing since the start is a suspicion, and a suspicion, or `ask`, is settled by asking for tokens.
        """
        assert self._process is not None
        if (code := self._process.exit_code()) is not None:
            raise self._died(code)
        self._check_time("cut off while it was measured")
        now = set(self.pids())
        self._known |= now
        if not ask and self._engine <= now:
            return
        probe = self._complete()
        if probe.answered and probe.tokens < 1:  # a server that fails some of its requests is not dead
            probe = self._complete()
        if probe.tokens < 1:
            self._check_time("cut off while it was asked for a token")
            # A process that is just gone refuses connections before its end has been told, on a busy machine.
            raise self._died(self._process.exit_code(0.0 if probe.answered else END_TOLD_S), probe.problem)
        self._engine &= now

    def _complete(self) -> Probe:
        timeout_s = min(ALIVE_TIMEOUT_S, max(self.ends_at - time.monotonic(), 0.0))
        return complete(self.base_url, self.served_name, timeout_s, self._api_key)

    def _check_time(self, told: str) -> None:
        if time.monotonic() >= self.ends_at:
            raise self._failed(Outcome.INTERRUPTED, f"{NO_TIME}: {told}")

    # ------------------------------------------------------------ start

    def _launch(self, avoid: int = 0) -> None:
        """Start and wait until ready; whatever goes wrong on the way, Ctrl-C included, the server is ended first."""
        try:
            self.port = ports.free_port(avoid=(avoid,))
            self._spawn()
            self._wait_ready()
        except BaseException as error:
            try:
                self._stop()
            except AdvisorError:
                if not isinstance(error, KeyboardInterrupt):
                    raise  # something is left over: that must end the study, whatever the start's own failure
            raise

    def _spawn(self) -> None:
        plumbing = ("--host", ports.HOST, "--port", str(self.port), "--served-model-name", self.served_name)
        argv = (*self.command.argv, *plumbing)
        scratch = None if SOCKETS in self.command.env else sockets_folder()
        added = {
            **PLUMBING,
            **({SOCKETS: scratch} if scratch else {}),
            **self._caches,
            **self.command.env,
            **self._renewed,
        }
        record = {"argv": redact_argv(argv), "env": redact_env(added)}
        (self.folder / COMMAND).write_text(json.dumps(record, indent=2) + "\n")
        env = with_own_tools(scrubbed_environment(os.environ, added), argv[0])
        self._process = self._forked(argv, env, scratch)
        self.launcher = WARM if self._process else COLD
        if self._process is None:
            self._process = GuardedProcess(argv, env, Path.cwd(), self.log_path, self._grace, scratch)
        self._event("started")

    def _forked(self, argv: tuple[str, ...], env: dict[str, str], scratch: str | None) -> GuardedProcess | None:
        """A process out of the launcher; None where there is none or it cannot be, which is told once."""
        if self._warm is None:
            return None
        shared = shared_environment(env, {**self.command.env, SOCKETS: ""})
        try:
            return self._warm.process(argv, shared, env, Path.cwd(), self.log_path, self._grace, scratch)
        except ColdStart as why:
            if not why.told:
                self._retried(f"launched cold: {why}")
            return None
        finally:
            self.launcher_s += self._warm.waited_s
            self.launcher_import_s = max(self.launcher_import_s, self._warm.import_s)

    def _wait_ready(self) -> None:
        assert self._process is not None
        tail = LogTail(self.log_path)
        progress = Progress(self._limits, self._signs(tail))
        self._prober = prober = Prober(self.base_url, self.served_name, self._limits.first_token_s, self._api_key)
        bad_answers, wait_s, signs_at = 0, FIRST_POLL_S, 0.0
        doomed_at = math.inf
        while True:
            said = tail.read()
            if now_doing := phase(said):
                self._event(now_doing)
            if any(words in said for words in LAST_WORDS):
                doomed_at = min(doomed_at, time.monotonic())
            if time.monotonic() - doomed_at > LAST_WORDS_GRACE_S:
                raise self._start_failed(*classify(1, self.log_text()))
            probe = self._ask(prober)
            if probe is not None and self._is_ready(probe):
                return
            bad_answers += probe is not None and probe.answered
            self._give_up_if_hopeless(probe, bad_answers)
            self._check_time("cut off before it was ready")
            if time.monotonic() - signs_at >= SIGNS_EVERY_S:
                signs_at = time.monotonic()
                if stuck := progress.observe(self._signs(tail)):
                    raise self._failed(Outcome.TIMED_OUT, stuck)
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.2, LAST_POLL_S)

    def _ask(self, prober: Prober) -> Probe | None:
        """Ask for tokens as soon as somebody listens; what is alive then is what check_alive will miss later."""
        if not prober.busy:
            if not ports.is_open(self.port):
                return None
            self._engine = set(self.pids())
            self._known |= self._engine
        return prober.poll()

    def _is_ready(self, probe: Probe) -> bool:
        """Tokens count only if every listener on the port is ours and the answer bears the name of this launch."""
        assert self._process is not None
        if not probe.answered:
            return False
        found = ports.listeners(self.port)
        if found and (strangers := ports.foreign(found, self.pids())):
            raise PortTaken(f"port {self.port} is in use by {ports.describe(strangers)}, not by the launched server")
        if probe.tokens < 1 or probe.model != self.served_name or found == []:
            return False
        self.start_s = time.monotonic() - self._process.started
        self._memory.total_mib()  # where the start was too quick to be watched
        self._event("ready")
        return True

    def _give_up_if_hopeless(self, probe: Probe | None, bad_answers: int) -> None:
        assert self._process is not None
        if (code := self._process.exit_code()) is not None:
            outcome, reason = classify(code, self.log_text())
            if port_taken(reason):
                raise PortTaken(f"port {self.port} is in use by {ports.describe(ports.listeners(self.port))}")
            raise self._start_failed(outcome, reason)
        if probe is not None and bad_answers >= BAD_ANSWERS:
            problem = probe.problem or f"it answers for the model {probe.model!r}"
            raise self._failed(Outcome.FAILED_TO_START, f"the server runs but gives no token: {problem}")

    def _start_failed(self, outcome: Outcome, reason: str) -> LaunchFailed | CacheBroken:
        self._blame_others(outcome, reason)
        if self._renew_caches is not None and compile_cache_broken(self.log_text()):
            return CacheBroken(reason)
        return self._failed(outcome, reason)

    def _blame_others(self, outcome: Outcome, reason: str) -> None:
        """Raises GpuInUse or GpuCrowded where a start failed because of memory that somebody else has."""
        crowded = dirty_gpu(reason)
        if crowded or outcome is Outcome.OUT_OF_MEMORY:
            self._memory.check_intruders(self._known, reason)
        if crowded:
            raise GpuCrowded(reason)

    def _check_alone(self, cause: PortTaken | GpuCrowded | CacheBroken) -> None:
        """Nothing of ours is left on the GPU now. Raises GpuInUse where others have memory that the start missed."""
        if isinstance(cause, GpuCrowded):
            gpu_memory.check_alone(self._gpu, str(cause))

    def _signs(self, tail: LogTail) -> Signs:
        assert self._process is not None
        self._known.update(self.pids())
        return Signs(time.monotonic(), tail.telling, self._process.cpu_s(), self._memory.total_mib())

    # ------------------------------------------------------------ end

    def _stop(self) -> None:
        if self._process is None:
            return
        self._event("stopping")
        process, self._process = self._process, None
        try:
            stopped = stop(process, self.port, self._memory, self._known)
            self.stop_s, self.leftovers = stopped.seconds, stopped.leftovers
        finally:
            if self._prober is not None:
                self._prober.close()
                self._prober = None
            for file in rendezvous_files(self.log_text()):
                file.unlink(missing_ok=True)

    # ------------------------------------------------------------ telling

    def _event(self, name: str) -> None:
        if self._process is not None:
            self._on_event(name, time.monotonic() - self._process.started)

    def _died(self, code: int | None, problem: str = "") -> LaunchFailed:
        outcome, reason = classify(code, self.log_text(), was_ready=True)
        if code is None:
            reason = f"the server still runs, but its engine does not answer: {problem or reason}"
            outcome = outcome if outcome is Outcome.OUT_OF_MEMORY else Outcome.CRASHED
        elif code == 0:
            reason = "the server ended by itself (exit code 0)"
        if outcome is Outcome.OUT_OF_MEMORY:
            self._memory.check_intruders(self._known, reason)
        return self._failed(outcome, reason)

    def _failed(self, outcome: Outcome, reason: str, retryable: bool = False) -> LaunchFailed:
        return LaunchFailed(outcome, reason, error_lines(self.log_text()), self.log_path, retryable)


def launcher_environment(
    inherited: Mapping[str, str], caches: Mapping[str, str], env: Mapping[str, str], python: str
) -> dict[str, str]:
    """What a launcher has from which servers with these caches are forked, before any is. `env`: of all their commands."""
    whole = with_own_tools(scrubbed_environment(inherited, {**PLUMBING, **caches, **env}), python)
    return {**shared_environment(whole, {**env, SOCKETS: ""}), **env}


def with_own_tools(env: dict[str, str], python: str) -> dict[str, str]:
    """PATH with the interpreter's own folder in front: its ninja and compiler are what vLLM builds kernels with."""
    folder = Path(python).parent
    if not folder.is_absolute():
        return env
    return {**env, "PATH": os.pathsep.join([str(folder), env.get("PATH", os.defpath)])}


def option_value(argv: tuple[str, ...], name: str) -> str | None:
    """The last value of an option in an argument list, in either spelling (`--x v`, `--x=v`)."""
    value = None
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value
