"""What many forked launches leave behind: `python -m benchmarks.leaks --help`.

Starts and stops the default eagerly, forked, LAUNCHES times after a first one, which opens what stays open (NVML, the launcher).
The file says what was there before and after: GPU memory, shared memory (without what other programs have mapped), temporary files
(the run has a folder of its own), processes (what is orphaned stays a descendant of this one, whatever it makes of its name and
environment), and the open files of this process and of the launcher by kind. It is replaced after each launch, so an end by Ctrl-C
or SIGTERM leaves what was seen so far. Exit code 1: something is left, or a launch failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from advisor.errors import AdvisorError
from advisor.journal import write_atomically
from advisor.launch import gpu_memory
from advisor.launch.failure import LaunchFailed
from advisor.launch.guard import PR_SET_CHILD_SUBREAPER, prctl
from advisor.launch.warm_choice import WARM
from advisor.study.endings import termination_is_ctrl_c
from benchmarks.launcher import INTERRUPTED, Bench, NotForked, add_server_arguments, benches, say

CONFIG = "eager"
SHARED_MEMORY = Path("/dev/shm")
SETTLE_S = 5.0  # a guard is collected by the launcher within a second of its end


def seen(bench: Bench) -> dict[str, Any]:
    """Everything that a launch could leave, as it is now. MiB by GPU; lists are sorted."""
    launcher, ours = bench.warm.pid, processes()
    return {
        "gpu_mib": dict(gpu_memory.used(bench.facts.gpu) or {}),
        "shared_memory": shared_memory(ours),
        "temporary_files": names(Path(tempfile.gettempdir())),
        "processes": [pid for pid in ours if pid != launcher],
        "own_files": open_files(os.getpid()),
        "launcher_files": open_files(launcher) if launcher else {},
        "launcher_threads": psutil.Process(launcher).num_threads() if launcher else 0,
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def shared_memory(ours: Sequence[int]) -> list[str]:
    """Names, without those that a living process has mapped which is not `ours` and not this one."""
    theirs: set[str] = set()
    for process in psutil.process_iter():
        if process.pid not in ours and process.pid != os.getpid():
            with contextlib.suppress(OSError):
                theirs |= set(re.findall(rf"{SHARED_MEMORY}/(\S+)", Path(f"/proc/{process.pid}/maps").read_text()))
    return [name for name in names(SHARED_MEMORY) if name not in theirs]


def processes() -> list[int]:
    """All descendants of this process that run."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return sorted(found)


def open_files(pid: int) -> dict[str, int]:
    """How many of each kind: pipe, socket, anon_inode, file."""
    kinds: Counter[str] = Counter()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            kinds["file" if target.startswith("/") else target.partition(":")[0]] += 1
    return dict(sorted(kinds.items()))


def left(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What there is more of than before, by name; empty where nothing is. GPU memory counts from gpu_memory.TOLERANCE_MIB on."""
    found: dict[str, Any] = {}
    for name, now in after.items():
        then = before[name]
        if name == "gpu_mib":
            more = dict(gpu_memory.excess(then, now))
        elif isinstance(now, list):
            more = [one for one in now if one not in then]
        elif isinstance(now, dict):
            more = {kind: count - then.get(kind, 0) for kind, count in now.items() if count > then.get(kind, 0)}
        else:
            more = max(now - then, 0)
        if more:
            found[name] = more
    return found


def settled(look: Callable[[], dict[str, Any]], before: Mapping[str, Any]) -> dict[str, Any]:
    """What is seen once nothing is left, or after SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    while left(before, now := look()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def run(bench: Bench, launches: int, document: dict[str, Any], path: Path) -> None:
    """Fills the document. Raises KeyboardInterrupt when it is told to end, with the document as far as it came."""
    attempt(bench, document)
    if bench.warm.pid is None:
        return
    document["before"] = before = seen(bench)
    document["start_s"] = []
    for _ in range(launches):
        if not attempt(bench, document):
            break
        document["launches"] = len(document["start_s"])
        document["after"] = settled(lambda: seen(bench), before)
        document["gpu_mib_after_each"].append(sum(document["after"]["gpu_mib"].values()))
        document["left"] = left(before, document["after"])
        write_atomically(path, json.dumps(document, indent=1) + "\n")
        say(
            f"{document['launches']} of {launches}: {document['start_s'][-1]:.1f} s; left: {document['left'] or 'nothing'}"
        )


def attempt(bench: Bench, document: dict[str, Any]) -> bool:
    try:
        document["start_s"].append(round(bench.launch(CONFIG, WARM).start_s, 2))
        return True
    except (LaunchFailed, NotForked) as problem:
        document["failed"] = f"{type(problem).__name__}: {problem}"
        say(document["failed"])
        return False


@contextlib.contextmanager
def orphans_stay() -> Iterator[None]:
    """Whose parent has ended is this process's child meanwhile, and not the system's."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0)


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Other programs' temporary files are not in it; its path is short, for sockets. The launcher and its servers have it too."""
    kept, folder = (os.environ.get("TMPDIR"), tempfile.tempdir), tempfile.mkdtemp(prefix="t")
    os.environ["TMPDIR"], tempfile.tempdir = folder, folder
    try:
        yield
    finally:
        tempfile.tempdir = kept[1]
        os.environ.pop("TMPDIR") if kept[0] is None else os.environ.update(TMPDIR=kept[0])
        shutil.rmtree(folder, ignore_errors=True)  # the document names what was in it


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leaks", description=__doc__.splitlines()[0])
    add_server_arguments(parser)
    parser.add_argument("--launches", type=int, default=50)
    return parser.parse_args(words, argparse.Namespace(measure=None))


def main(words: Sequence[str]) -> None:
    given, ended, earlier = _arguments(words), False, processes()
    document: dict[str, Any] = {"model": Path(given.model).name, "launches": 0, "start_s": [], "gpu_mib_after_each": []}
    with own_temporary_folder(), orphans_stay():
        try:
            with termination_is_ctrl_c(), benches(given) as bench:
                document["gpu"], document["vllm"] = bench.facts.gpu.name, bench.facts.engine.vllm_version
                run(bench, given.launches, document, given.output)
        except KeyboardInterrupt:
            ended = True
        except AdvisorError as error:
            document["failed"] = error.problem
        document["processes_at_the_end"] = [pid for pid in processes() if pid not in earlier]  # the launcher's included
    write_atomically(given.output, json.dumps(document, indent=1) + "\n")
    say(
        f"{document['launches']} launches; left: {document.get('left') or 'nothing'}, {document.get('failed', 'none failed')}"
    )
    if ended:
        sys.exit(INTERRUPTED)
    if document.get("left") or document.get("failed") or document["processes_at_the_end"]:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
