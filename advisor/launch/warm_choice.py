"""Which launches may be forked from a process that has vLLM imported, and what a failure says against forking. Pure.

Whatever is not known to come out the same is launched cold: a fork must be a quicker way to the same server and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from advisor.engine.options import parse_options
from advisor.errors import InputError
from advisor.records import Outcome

WARM, COLD = "warm", "cold"
LAUNCHERS = (WARM, COLD)
MODULE = ("-m", "vllm.entrypoints.cli.main", "serve")
METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
PROVEN = ("cuda", "cpu")  # kinds of GpuFacts
# One API server, one engine process, one device: everything else starts processes in ways that were not tried.
_ONE = (
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--data-parallel-size-local",
    "--prefill-context-parallel-size",
    "-pcp",
    "--decode-context-parallel-size",
    "-dcp",
    "--api-server-count",
    "-asc",
    "--nnodes",
    "-n",
)
_NONE = (
    "--headless",
    "--numa-bind",
    "--omni",
    "--grpc",
    "--data-parallel-rank",
    "-dpn",
    "--data-parallel-start-rank",
    "-dpr",
    "--config",
)
_EXECUTORS = ("mp", "uni", "None")


def machine_refusal(system: str, release: str, kind: str) -> str | None:
    """Why nothing can be forked on this machine. `system`: sys.platform; `release`: the kernel's."""
    if not system.startswith("linux"):
        return f"servers are forked on Linux only, not on {system}"
    if "microsoft" in release.lower():
        return "on WSL the GPU cannot be used after a fork"
    if kind not in PROVEN:
        return f"forking was tried on {' and '.join(PROVEN)}, not on {kind}"
    return None


def command_refusal(argv: tuple[str, ...], python: str) -> str | None:
    """Why this command cannot be run by forking `python`'s launcher."""
    if argv[:4] != (python, *MODULE):
        return "the command is not the installed vLLM's own serve"
    try:
        options = parse_options(argv[5:]).values
    except InputError:
        return None  # the server says itself what is wrong with it
    for name in _ONE:
        if str(options.get(name, "1")) != "1":
            return f"{name} {options[name]}: forking was tried with one device and one engine only"
    if used := [name for name in _NONE if options.get(name) not in (None, False)]:
        return f"{used[0]}: forking was not tried with it"
    executor = str(options.get("--distributed-executor-backend"))
    return (
        None if executor in _EXECUTORS else f"--distributed-executor-backend {executor}: forking was not tried with it"
    )


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Names whose values differ, or that only one of the two has, sorted."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def environment_refusal(launcher: Mapping[str, str], server: Mapping[str, str], used: Collection[str]) -> str | None:
    """Why a server with this environment cannot come out of a launcher with that one.

    `used`: what Python code read or set during the imports. A variable of vLLM's own that is not among them cannot have had an
    effect yet. Any other may have: C and C++ libraries read theirs when they are loaded, and nobody sees it.
    """
    for name in differing(launcher, server):
        if name == METHOD and server.get(name) == "fork":
            continue
        if name == METHOD:
            return f"{name}={server.get(name)} asks for another way to start processes"
        if name in used:
            return f"{name} is read when vLLM is imported"
        if not name.startswith("VLLM_"):
            return f"{name} may be read when a library is loaded"
    return None


# ---------------------------------------------------------------- failures

_BROKEN_FORK = re.compile(
    r"advisor: CUDA was in use before the fork|in (?:a )?forked subprocess|CUDA error: initialization error|"
    r"cudaErrorInitializationError|CUDA driver initialization failed",
    re.IGNORECASE,
)
# What a cold start would say as well: these come from the settings and the memory that there is.
_CERTAIN = (Outcome.UNSUPPORTED, Outcome.OUT_OF_MEMORY)


def fork_broken(log_text: str) -> bool:
    """Whether the server's log blames the fork itself."""
    return bool(_BROKEN_FORK.search(log_text))


def may_be_the_fork(outcome: Outcome, log_text: str) -> bool:
    """Whether a start that failed is tried once more without a fork, before the candidate is blamed."""
    if outcome is Outcome.INTERRUPTED:
        return False  # nobody is blamed, and there is no time for another start
    return outcome not in _CERTAIN or fork_broken(log_text)
