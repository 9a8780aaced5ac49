"""What forking takes on vLLM's CPU build. Loaded by warm_serve.py, imports none of ours.

The CPU platform sets the start method to spawn, for the sake of its worker: how many threads OpenMP has and where they are bound is
read from the environment when a process is executed, and vLLM sets that just before it starts the worker. So

- the engine's process, which only schedules, is forked in any case;
- the launcher is executed with the environment that the worker of the first server would be executed with (asked of vLLM itself,
  in a child), and gives its own processor affinity back in what it forks;
- the worker is forked if, at that moment, what it would be executed with is what the launcher was executed with; else it is
  spawned, as in a cold start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os

# Read by C libraries when they are loaded: the allocator, OpenMP and the linear algebra.
_EXECUTED = ("LD_PRELOAD", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "TCMALLOC_", "GLIBC_TUNABLES")
BINDING = "GOMP_CPU_AFFINITY"


def executed(env) -> dict[str, str]:
    """What of an environment takes effect when a process is executed."""
    return {name: value for name, value in env.items() if name.startswith(_EXECUTED)}


def is_ours() -> bool:
    """Whether this vLLM is a CPU build whose workers are processes of their own."""
    try:
        import vllm.utils.ompmultiprocessing  # noqa: F401
        from vllm.platforms import current_platform
    except ImportError:
        return False
    return current_platform.is_cpu()


def workers_environment(argv: list[str]) -> dict[str, str]:
    """What the worker of `vllm serve ARGV` would be executed with, of what takes effect then. Empty where vLLM does not say."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.write(writer, json.dumps(_ask(argv)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(told) if told else {}


def _ask(argv: list[str]) -> dict[str, str]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.utils.ompmultiprocessing import OMPProcessManager

    parser = FlexibleArgumentParser()
    cmd_init()[0].subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    args = parser.parse_args(["serve", *argv])
    args.model = args.model_tag or args.model
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    with OMPProcessManager(config).configure_omp_envs(rank=0, local_rank=0):
        return executed(os.environ)


def fork_engine_and_worker(launcher: dict[str, str]) -> None:
    """In the server, before it runs. `launcher`: what the launcher was executed with, as `executed` has it."""
    with contextlib.suppress(ImportError, AttributeError):  # another release has them elsewhere, and spawns
        _fork_engine()
        if BINDING in launcher:
            _fork_worker(launcher)


def _fork_engine() -> None:
    from vllm.v1.engine import utils

    utils.get_mp_context  # noqa: B018
    utils.get_mp_context = _fork


def _fork():
    return multiprocessing.get_context("fork")


def _fork_worker(launcher: dict[str, str]) -> None:
    from vllm.v1.executor import multiproc_executor as executor

    begin, run = executor.MultiprocExecutor._init_executor, executor.WorkerProc.worker_main
    manager = executor.OMPProcessManager

    def init_executor(self):
        if self.parallel_config.world_size == 1 and _would_be_executed_with(manager, self.vllm_config) == launcher:
            executor.get_mp_context = _fork
        return begin(self)

    def worker_main(*args, **kwargs):
        # OpenMP bound the launcher's own thread to the first processor of the list, as it does in an executed worker.
        os.sched_setaffinity(0, {int(launcher[BINDING].split()[0])})
        return run(*args, **kwargs)

    executor.MultiprocExecutor._init_executor = init_executor
    # A spawned worker finds vLLM's own function by its name: only a forked one comes by here.
    worker_main.__qualname__, worker_main.__module__ = run.__qualname__, run.__module__
    executor.WorkerProc.worker_main = staticmethod(worker_main)


def _would_be_executed_with(manager, config) -> dict[str, str]:
    """Asked before the worker is started; the manager's lines would stand in the log twice."""
    log = logging.getLogger("vllm.utils.ompmultiprocessing")
    log.disabled, before = True, log.disabled
    try:
        with manager(config).configure_omp_envs(rank=0, local_rank=0):
            return executed(os.environ)
    finally:
        log.disabled = before
