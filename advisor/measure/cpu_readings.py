"""What Linux says of the processor before and after a sample: whose the used time was, and who waited for it.

Only differences over the whole sample are taken, so nothing but the load average is read while it runs. The advisor and
everything that it started is ours: server and client are its descendants, and ended ones are counted by their parents.
What /proc/stat shows in a container is the machine, so foreign use is seen there even where foreign processes are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from advisor.records import Foreign

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
NAMED = 3  # foreign processes that are named
LEAST_NAMED_CORES = 0.02
API_SERVER = "VLLM::APIServer"  # process names of --api-server-count 2 and more; of a name Linux keeps 15 characters


@dataclass(frozen=True)
class Process:
    """One line of /proc/PID/stat."""

    parent: int
    name: str
    ticks: int  # of itself
    ended_ticks: int = 0  # of its children that have ended


@dataclass(frozen=True)
class CpuSnapshot:
    """Counters since the machine's start. Ticks are of the cores that this process may use."""

    at_s: float
    cores: int = 0
    busy_ticks: int = 0
    steal_ticks: int = 0
    all_ticks: int = 0
    pressure_us: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    processes: Mapping[int, Process] = field(default_factory=dict)


@dataclass(frozen=True)
class CpuUse:
    """What lies between two snapshots; the fields are those of Telemetry."""

    cores: int | None = None
    own_cores: float | None = None
    foreign_cores: float | None = None
    steal_share: float | None = None
    pressure_share: float | None = None
    throttled_share: float | None = None
    cpu_processes: tuple[Foreign, ...] = ()


def snapshot(proc: Path = PROC, cgroup: Path = CGROUP) -> CpuSnapshot:
    """Takes some milliseconds (one small file a process); empty where there is no /proc."""
    at_s = time.monotonic()
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    periods, throttled = throttling(proc, cgroup)
    return CpuSnapshot(at_s, *core_ticks(_text(proc / "stat"), allowed), pressure(proc), periods, throttled, processes(proc))


def between(before: CpuSnapshot, after: CpuSnapshot, root: int) -> CpuUse:
    """How the time between two snapshots was used; `root` and its descendants are ours."""
    passed_s, all_ticks = after.at_s - before.at_s, after.all_ticks - before.all_ticks
    if passed_s <= 0 or all_ticks <= 0:
        return CpuUse()
    ours = family(after.processes, root) | family(before.processes, root)
    own = used_ticks(before.processes, after.processes, ours)
    busy = after.busy_ticks - before.busy_ticks
    # Cores and not seconds: the ticks of all cores together say how long it was, so rounding cannot make them disagree.
    return CpuUse(
        cores=after.cores,
        own_cores=round(own / all_ticks * after.cores, 3),
        foreign_cores=round(max(0, busy - own) / all_ticks * after.cores, 3),
        steal_share=round((after.steal_ticks - before.steal_ticks) / all_ticks, 4),
        pressure_share=_share(before.pressure_us, after.pressure_us, passed_s * 1e6),
        throttled_share=_share(
            before.throttled_periods, after.throttled_periods, (after.periods or 0) - (before.periods or 0)
        ),
        cpu_processes=busiest(before.processes, after.processes, ours, all_ticks / after.cores),
    )


def _share(before: int | None, after: int | None, whole: float) -> float | None:
    return None if before is None or after is None or whole <= 0 else round((after - before) / whole, 4)


# ---------------------------------------------------------------- processes


def processes(proc: Path = PROC) -> dict[int, Process]:
    found = {}
    for folder in os.scandir(proc) if proc.is_dir() else ():
        if folder.name.isdigit() and (line := _text(Path(folder.path, "stat"))):
            found[int(folder.name)] = read_process(line)
    return found


def read_process(line: str) -> Process:
    """From /proc/PID/stat (proc_pid_stat(5)): after the name in brackets come state, parent, and at 12 to 15 the times."""
    head, _, rest = line.rpartition(")")
    fields = rest.split()
    user, system, ended_user, ended_system = (int(ticks) for ticks in fields[11:15])
    return Process(int(fields[1]), head.partition("(")[2], user + system, ended_user + ended_system)


def family(known: Mapping[int, Process], root: int) -> set[int]:
    """`root` and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    found, todo = set(), [root]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def used_ticks(before: Mapping[int, Process], after: Mapping[int, Process], ours: set[int]) -> int:
    """What ours used. One that ended in between is in its parent's count, less what it had used before."""

    def total(known: Mapping[int, Process]) -> int:
        return sum(known[pid].ticks + known[pid].ended_ticks for pid in ours if pid in known)

    return max(0, total(after) - total(before))


def busiest(
    before: Mapping[int, Process], after: Mapping[int, Process], ours: set[int], ticks_a_core: float
) -> tuple[Foreign, ...]:
    """The foreign processes that used most, those that are hardly there left out."""
    used = {
        pid: (process.ticks - (before[pid].ticks if pid in before else 0)) / ticks_a_core
        for pid, process in after.items()
        if pid not in ours
    }
    most = sorted(used, key=lambda pid: -used[pid])[:NAMED]
    return tuple(
        Foreign(pid, after[pid].name, cores=round(used[pid], 3)) for pid in most if used[pid] >= LEAST_NAMED_CORES
    )


def api_server_threads(known: Mapping[int, Process], server: int, proc: Path = PROC) -> dict[int, int]:
    """Ticks of the thread that answers all requests of an API server, its process's first one (uvicorn runs there), by process.

    `server` is the process that was launched: the only API server, or the parent of several, which vLLM names.
    """
    several = [pid for pid in family(known, server) if pid in known and known[pid].name.startswith(API_SERVER)]
    lines = {pid: _text(proc / str(pid) / "task" / str(pid) / "stat") for pid in several or [server]}
    return {pid: read_process(line).ticks for pid, line in lines.items() if line}


def busiest_thread(before: Mapping[int, int], after: Mapping[int, int], passed_s: float) -> float | None:
    """Share of a core, 0 to 1, that the busiest of these threads used; None where none was there all the time."""
    used = [(ticks - before[pid]) * TICK_S for pid, ticks in after.items() if pid in before]
    return round(min(1.0, max(used) / passed_s), 4) if used and passed_s > 0 else None


# ---------------------------------------------------------------- the whole machine, and the container


def core_ticks(stat: str, allowed: set[int]) -> tuple[int, int, int, int]:
    """Cores, busy, stolen and all ticks from /proc/stat, of the cores in `allowed` (all where it is empty).

    Busy is user, nice and system. Interrupts are nobody's: they are counted for no process either. Guests' time is in
    user already.
    """
    cores = busy = steal = whole = 0
    for line in stat.splitlines():
        name, *fields = line.split() or [""]
        if name.startswith("cpu") and name != "cpu" and (not allowed or int(name[3:]) in allowed):
            user, nice, system, idle, wait, irq, softirq, stolen = (int(ticks) for ticks in (fields + ["0"] * 8)[:8])
            cores += 1
            busy += user + nice + system
            steal += stolen
            whole += user + nice + system + idle + wait + irq + softirq + stolen
    return cores, busy, steal, whole


def pressure(proc: Path = PROC) -> int | None:
    """Microseconds in which some task waited for a core; None where the kernel does not count it."""
    for line in _text(proc / "pressure" / "cpu").splitlines():
        if line.startswith("some") and "total=" in line:
            return int(line.rpartition("total=")[2])
    return None


def throttling(proc: Path = PROC, cgroup: Path = CGROUP) -> tuple[int | None, int | None]:
    """Periods of the container's quota, and those in which it was used up; None without a quota.

    In version 2 the group is the path after `0::`, which in a container of its own name space is the root.
    """
    groups = [line.split(":", 2) for line in _text(proc / "self" / "cgroup").splitlines() if line.count(":") >= 2]
    second = [path.lstrip("/") for number, kinds, path in groups if number == "0" and not kinds]
    first = [path.lstrip("/") for _, kinds, path in groups if "cpu" in kinds.split(",")]
    places = [cgroup / path for path in second] + [cgroup / "cpu" / path for path in first] + [cgroup, cgroup / "cpu"]
    for place in places:
        counts = dict(line.split()[:2] for line in _text(place / "cpu.stat").splitlines() if len(line.split()) >= 2)
        if int(counts.get("nr_periods", 0)):
            return int(counts["nr_periods"]), int(counts.get("nr_throttled", 0))
    return None, None


def _text(path: Path) -> str:
    """Empty where the file is missing, or its process has ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
