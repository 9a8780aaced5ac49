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
that is looked for after each import. An import that does it is named and left out, in a fresh copy of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import stat
import sys
import threading
import time
import warnings
from typing import NoReturn

# What API server and engine import in any case, in an order that brings the large ones first. What this release has not is
# passed over. FlashInfer's attention backend is missing on purpose: its import initialises CUDA.
ESSENTIAL = ("vllm", "torch", "vllm.entrypoints.cli.serve", "vllm.v1.engine.core", "vllm.v1.engine.async_llm")
# The CPU worker replaces functions of torch and of vLLM, which others must not have imported by name before.
FIRST = {"cpu": ("vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker")}
COMMON = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.cli.openai",
    "vllm.entrypoints.cli.launch",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.entrypoints.cli.collect_env",
    "vllm.entrypoints.cli.download_kernels",
    "vllm.entrypoints.cli.preload",
    "vllm.entrypoints.cli.run_batch",
    "vllm.entrypoints.cli.snapshot",
    "vllm.v1.engine.core_client",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.core.sched.async_scheduler",
    "vllm.compilation.backends",
    "vllm.compilation.decorators",
    "vllm.compilation.cuda_graph",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.model_loader.default_loader",
    "vllm.model_executor.model_loader.dummy_loader",
    "vllm.model_executor.warmup.kernel_warmup",
    "vllm.tokenizers.registry",
    "transformers.models.auto.tokenization_auto",
)
BY_PLATFORM = {
    "cuda": (
        "vllm.v1.worker.gpu_worker",
        "vllm.v1.worker.gpu_model_runner",
        "vllm.v1.worker.gpu.model_runner",
        "vllm.v1.attention.backends.flash_attn",
        "vllm.v1.attention.backends.triton_attn",
        "vllm.v1.attention.backends.flex_attention",
    ),
    "cpu": ("vllm.v1.attention.backends.cpu_attn",),
}
MOST_LEFT_OUT = 3  # imports that are found unfit before the whole is given up
METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
BAD_FORK = "advisor: CUDA was in use before the fork"  # launch/warm_choice.py looks for this line


# ---------------------------------------------------------------- imports


class Unfit(Exception):
    """Nothing can be forked from this process. `module`: whose import is to blame."""

    def __init__(self, why: str, module: str | None = None):
        super().__init__(why)
        self.module = module


class EnvironmentUse:
    """Records the names of environment variables that Python code reads, sets or deletes while the block runs."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __enter__(self) -> EnvironmentUse:
        kind, names = type(os.environ), self.names
        self.before = dict(os.environ)
        self._kept = {name: getattr(kind, name) for name in ("__getitem__", "__setitem__", "__delitem__")}

        def recorded(original):
            def method(env, key, *value):
                names.add(os.fsdecode(key))
                return original(env, key, *value)

            return method

        for name, original in self._kept.items():
            setattr(kind, name, recorded(original))
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name, original in self._kept.items():
            setattr(type(os.environ), name, original)
        self.changes = {name: value for name, value in os.environ.items() if self.before.get(name) != value}


def import_all(architecture: str | None, left_out: list[str], control) -> list[str]:
    """Import what servers need, one module after the other; returns what failed, as `module: error`. Raises Unfit."""
    failed: list[str] = []
    import_some(ESSENTIAL[:1], left_out, failed, control)
    platform = platform_name() if not failed else ""
    import_some((*FIRST.get(platform, ()), *ESSENTIAL[1:]), left_out, failed, control)
    if failed:
        raise Unfit(f"vLLM cannot be imported: {failed[0]}")
    import_some(COMMON, left_out, failed, control)
    import_some((*BY_PLATFORM.get(platform, ()), *model_modules(architecture)), left_out, failed, control)
    return failed


def import_some(names, left_out: list[str], failed: list[str], control) -> None:
    for name in names:
        if name in left_out or control.is_over():
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if name in ESSENTIAL or not name.startswith(error.name or "?"):
                failed.append(f"{name}: {error}")  # not only that this release has no such module
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
        if why := against_a_fork() or child_process():
            raise Unfit(f"importing {name} {why}", name)


def platform_name() -> str:
    """cuda, cpu, rocm ...: what this vLLM runs on here. Raises Unfit where it does not say."""
    try:
        from vllm.platforms import current_platform

        return current_platform._enum.name.lower()
    except Exception as error:
        raise Unfit(f"vLLM cannot be imported: {type(error).__name__}: {error}") from None


def model_modules(architecture: str | None) -> list[str]:
    """Where the registry says that the model's code is."""
    try:
        from vllm.model_executor.models import ModelRegistry

        return [ModelRegistry.models[architecture].module_name]
    except (ImportError, AttributeError, KeyError):
        return []


# ---------------------------------------------------------------- what stands against a fork


def against_a_fork() -> str | None:
    """The rest of a sentence that begins with who did it; None where a fork is safe."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "initialised CUDA"
    if driver_in_use() and not driver_starts_in_a_fork():
        return "started the CUDA driver"
    if threads := [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]:
        return f"started a thread ({threads[0]})"
    return None


def driver_in_use() -> bool:
    """Whether the device file that CUDA uses, and NVML does not, is open."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/nvidia-uvm"):
                return True
    return False


def driver_starts_in_a_fork() -> bool:
    """The driver itself is asked, in a child: where its parent had it running, it refuses to start."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = min(ctypes.CDLL("libcuda.so.1").cuInit(0), 255)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def child_process() -> str | None:
    """An import that started a process keeps pipes to it, which a fork would share. Later on, guards are children too."""
    found = children()
    return f"started a process ({found[0]})" if found else None


def children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            found += map(int, file.read().split())
    return found


# ---------------------------------------------------------------- the socket


class Control:
    """The advisor's end of the talk. Descriptors 0 and 1 are no longer it: what libraries print goes to standard error."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=os.dup(0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)

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
    forget_own_folder()
    begun, use = time.monotonic(), EnvironmentUse()
    try:
        with use:
            failed = import_all(request.get("architecture"), request["without"], control)
        guard, cpu = load(request["guard"]), load(beside("warm_cpu.py"))
        if cpu.is_ours() and "affinity" not in request:
            as_workers_are(cpu, request, use, control)
    except Unfit as unfit:
        without_it(request, unfit, control, use.before)
        control.send({"unfit": str(unfit)})
        return None
    let_processes_be_named()
    control.send({"ready": facts(time.monotonic() - begun, use, request["without"], failed)})
    order = fork_until_told_to_leave(control, guard, request.get("affinity"))
    if order is not None and cpu.is_ours():
        cpu.fork_engine_and_worker(cpu.executed(use.before))
    return order and {**order, "changes": use.changes}


def let_processes_be_named() -> None:
    """setproctitle looks for the memory of the arguments beside that of the environment, which servers replace."""
    with contextlib.suppress(ImportError):
        import setproctitle

        setproctitle.getproctitle()


def as_workers_are(cpu, request: dict, use: EnvironmentUse, control: Control) -> None:
    """Execute this anew with what a worker is executed with (warm_cpu.py). Returns where that is what it has, or not known."""
    wanted = cpu.workers_environment(request.get("argv", []))
    if not wanted or wanted == cpu.executed(use.before):
        return
    print(f"advisor: once more with the environment of a worker: {wanted}", file=sys.stderr, flush=True)
    begin_anew({**request, "affinity": sorted(os.sched_getaffinity(0))}, control, {**use.before, **wanted})


def without_it(request: dict, unfit: Unfit, control: Control, env: dict[str, str]) -> None:
    """Begin anew without the import that did the damage, which cannot be undone; returns where that would not help."""
    without = [*request["without"], unfit.module]
    if unfit.module in (None, *ESSENTIAL) or len(without) > MOST_LEFT_OUT:
        return
    print(f"advisor: {unfit}: once more without it", file=sys.stderr, flush=True)
    for pid in children():  # they would stay children of this process, whatever it executes
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    begin_anew({**request, "without": without}, control, env)


def begin_anew(request: dict, control: Control, env: dict[str, str]) -> NoReturn:
    control.become_input()
    os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), json.dumps(request)], env)


def facts(seconds: float, use: EnvironmentUse, left_out: list[str], failed: list[str]) -> dict:
    """What the advisor decides with. `used`: variables that no server may have otherwise; `threads`: of native libraries too."""
    return {
        "seconds": round(seconds, 3),
        "platform": platform_name(),
        "vllm_version": sys.modules["vllm"].__version__,
        "used": sorted(use.names),
        "left_out": left_out,
        "failed": failed,
        "threads": len(os.listdir("/proc/self/task")),
    }


def fork_until_told_to_leave(control: Control, guard, affinity: list[int] | None) -> dict | None:
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
    """A file of ours by its path: guard.py and warm_cpu.py import nothing of ours."""
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


def end_with_starter() -> None:
    """Linux kills this process when the advisor dies: busy with imports, it would see the end of the socket too late.

    Guards that it forked do not inherit that, and end their servers in their own way.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def main() -> None:
    end_with_starter()
    order = launcher(json.loads(sys.argv[1]))
    if order is not None:
        serve(order)


if __name__ == "__main__":
    main()
