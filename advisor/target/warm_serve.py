"""Imports vLLM once and forks servers from it. Runs in the target interpreter, imports none of ours.

    python warm_serve.py '{"argv": what follows `serve` in the first command, "architecture": "LlamaForCausalLM" or null,
                           "guard": path of guard.py, "without": [modules]}'

Standard input is one end of a Unix socket that keeps messages apart (SOCK_SEQPACKET); both sides write JSON on it:
    first out   {"ready": {...}}, see `facts`, or {"unfit": "one line"}, after which it leaves
    in          {"fork": true} with two descriptors, which become standard input and output of a guard
    out         {"guard": pid} or {"refused": "one line"}
The end of the socket tells it to leave; servers that it forked have guards of their own and are not touched by that.

Each request forks a guard (guard.py, the same one that starts every other server), and the guard forks the server: told what to
run by the advisor, it takes its own session, log, folder, environment and arguments, and runs vLLM's own command line as
`python -m` would. So every process that matters is the guard's descendant, and this one only waits and forks.

A fork copies one thread and no GPU state. So nothing here may start a thread or a process, or make the CUDA driver start:
that is looked for after each import (warm_imports.py). An import that does it is named and left out, in a fresh copy of this
process.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import stat
import sys
import time
import warnings
from multiprocessing import resource_tracker
from typing import NoReturn

MOST_LEFT_OUT = 3  # imports that are found unfit before the whole is given up
METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
BAD_FORK = "advisor: CUDA was in use before the fork"  # launch/warm_choice.py looks for this line


# ---------------------------------------------------------------- the socket


class Control:
    """The advisor's end of the talk. Descriptors 0 and 1 are no longer it: what libraries print goes to standard error."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=os.dup(0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)

    def end_with_peer(self, wanted: bool) -> None:
        """Whether the kernel ends this process when the advisor's end is closed: busy with imports, it would not see that for long.

        Nothing is sent to it meanwhile. PR_SET_PDEATHSIG would end it with the advisor's thread already. Where it leads a group, as
        the advisor starts it, the whole group ends: children that answer for an import would go on for half a minute.
        """
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        own = os.getpid()
        fcntl.fcntl(self._socket, fcntl.F_SETOWN, -own if os.getpgrp() == own else own)
        flags = fcntl.fcntl(self._socket, fcntl.F_GETFL) & ~os.O_ASYNC
        fcntl.fcntl(self._socket, fcntl.F_SETFL, flags | (os.O_ASYNC if wanted else 0))
        if wanted and self.is_over():
            sys.exit()

    def send(self, value: dict) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(value).encode())

    def receive(self) -> tuple[dict, list[int]] | None:
        """The next message and its descriptors; None at the end. Children that ended meanwhile are collected."""
        while not self._readable(1.0):
            reap()
        reap()
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, 1 << 16, 2)
        except OSError:
            return None
        return (json.loads(data), fds) if data else None

    def is_over(self) -> bool:
        """Whether the advisor has gone while nobody listened."""
        try:
            return self._readable(0.0) and not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _readable(self, timeout_s: float) -> bool:
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def become_input(self) -> None:
        """Back to descriptor 0, for the same program executed anew."""
        os.dup2(self._socket.fileno(), 0)

    def close(self) -> None:
        self._socket.close()


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


# ---------------------------------------------------------------- the launcher


def launcher(request: dict) -> dict | None:
    """Import, then fork for each request. Returns the order in each forked server, None in the launcher at its end."""
    control = Control()
    control.end_with_peer(True)
    guard, imports, cpu = load(request["guard"]), load(beside("warm_imports.py")), load(beside("warm_cpu.py"))
    gpu = load(beside("warm_gpu.py"))
    forget_own_folder()
    begun, use = time.monotonic(), imports.EnvironmentUse()
    try:
        with use:
            failed = imports.import_all(request.get("architecture"), request["without"], control.is_over, gpu.told)
        if cpu.is_ours() and "affinity" not in request:
            as_workers_are(cpu, request, use, control)
    except imports.Unfit as unfit:
        if unfit.module and unfit.module not in imports.ESSENTIAL and len(request["without"]) < MOST_LEFT_OUT:
            without_it(request, unfit, control, use.before, imports.children())
        control.end_with_peer(False)
        control.send({"unfit": str(unfit)})
        return None
    let_processes_be_named()
    control.end_with_peer(False)
    at = time.monotonic()  # the same clock for all processes of a machine
    worked = round(time.process_time(), 3)  # of the goes before it was executed anew, too
    told = {"seconds": round(at - begun, 3), "at": at, "cpu_s": worked, "left_out": request["without"], "failed": failed}
    control.send({"ready": {**told, **facts(imports.platform_name(), use.names)}})
    order = fork_until_told_to_leave(control, guard, imports.against_a_fork, request.get("affinity"))
    if order is not None and cpu.is_ours():
        cpu.fork_engine_and_worker(cpu.executed(use.before))
    return order and {**order, "changes": use.changes}


def let_processes_be_named() -> None:
    """setproctitle looks for the memory of the arguments beside that of the environment, which servers replace."""
    with contextlib.suppress(ImportError):
        import setproctitle

        setproctitle.getproctitle()


def as_workers_are(cpu, request: dict, use, control: Control) -> None:
    """Execute this anew with what a worker is executed with (warm_cpu.py). Returns where that is what it has, or not known."""
    wanted = cpu.workers_environment(request.get("argv", []))
    if not wanted or wanted == cpu.executed(use.before):
        return
    print(f"advisor: once more with the environment of a worker: {wanted}", file=sys.stderr, flush=True)
    begin_anew({**request, "affinity": sorted(os.sched_getaffinity(0))}, control, {**use.before, **wanted})


def without_it(request: dict, unfit: Exception, control: Control, env: dict[str, str], started: list[int]) -> NoReturn:
    """Begin anew without the import that did the damage, which cannot be undone. `started`: processes that it left."""
    print(f"advisor: {unfit}: once more without it", file=sys.stderr, flush=True)
    for pid in started:  # they would stay children of this process, whatever it executes
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    begin_anew({**request, "without": [*request["without"], unfit.module]}, control, env)


def begin_anew(request: dict, control: Control, env: dict[str, str]) -> NoReturn:
    control.become_input()
    os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), json.dumps(request)], env)


def facts(platform: str, used: set[str]) -> dict:
    """What the advisor decides with. `used`: variables that no server may have otherwise; `threads`: of native libraries too."""
    return {
        "platform": platform,
        "vllm_version": sys.modules["vllm"].__version__,
        "used": sorted(used),
        "threads": len(os.listdir("/proc/self/task")),
    }


def fork_until_told_to_leave(control: Control, guard, against_a_fork, affinity: list[int] | None) -> dict | None:
    while (message := control.receive()) is not None:
        fds = message[1]
        if why := against_a_fork():
            control.send({"refused": f"the launcher itself {why}"})
        else:
            pid = quiet_fork()
            if pid == 0:
                control.close()
                if affinity:
                    os.sched_setaffinity(0, affinity)
                return be_guard(guard, fds)
            control.send({"guard": pid})
        for fd in fds:
            os.close(fd)
    return None


def quiet_fork() -> int:
    """Python 3.12 on warns of native threads beside a fork: those of linear algebra are prepared for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def be_guard(guard, fds: list[int]) -> dict:
    """In the child: guard one server to its end. Only the server itself, forked in there, returns, with its order."""
    os.setsid()
    for fd, target in zip(fds, (0, 1), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    order = guard.main(server=dict)
    if order is None:
        os._exit(0)
    return order


def beside(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def load(path: str):
    """A file of ours by its path: those that are loaded here import nothing of ours either."""
    name = "advisor_" + os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forget_own_folder() -> None:
    """Python puts the script's folder first on the path, where its neighbours could hide installed modules."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != own]


# ---------------------------------------------------------------- the server


def serve(order: dict) -> None:
    """What `python -m MODULE ARGUMENTS` does, in a process that has the imports behind it."""
    behave_like_a_new_interpreter()
    if in_bad_fork():
        print(BAD_FORK, flush=True)
        sys.exit(1)
    env = {METHOD: "fork", **order["env"], **order["changes"]}
    os.environ.clear()
    os.environ.update(env)
    module, *arguments = order["argv"][2:]
    if not getattr(sys.flags, "safe_path", False):  # before 3.11 there is no such thing, and -m begins with this folder
        sys.path.insert(0, os.getcwd())
    sys.argv = [module, *arguments]
    # A process that spawns has one tracker for all that it starts. Without it the engine starts its own, which is killed with the
    # engine's other children, and shared memory stays behind.
    os.register_at_fork(before=resource_tracker.ensure_running)
    keep_the_port_to_this_process(arguments)
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def behave_like_a_new_interpreter() -> None:
    """Signals as Python sets them at its start; the guard, whose copy this is, had its own."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def keep_the_port_to_this_process(arguments: list[str]) -> None:
    """A cold server spawns its engine, which has no part in the API server's socket; a forked one would keep it open."""
    if "--port" not in arguments:
        return
    port = int(arguments[len(arguments) - arguments[::-1].index("--port")])

    def close_in_child() -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if bound_to(fd) == port:
                    os.dup2(null, fd, inheritable=False)  # whoever closes it later closes no other file
        os.close(null)

    os.register_at_fork(after_in_child=close_in_child)


def bound_to(fd: int) -> int | None:
    """The TCP port of a socket that is connected to nobody. Raises OSError where nothing is open."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return None
    with contextlib.closing(socket.socket(fileno=os.dup(fd))) as found:
        if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
            return None
        with contextlib.suppress(OSError):
            found.getpeername()
            return None
        return found.getsockname()[1]


def in_bad_fork() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda._is_in_bad_fork()


def main() -> None:
    order = launcher(json.loads(sys.argv[1]))
    if order is not None:
        serve(order)


if __name__ == "__main__":
    main()
