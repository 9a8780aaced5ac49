"""Whose the processor's time was: from made-up /proc files, and from this machine's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.measure import cpu_readings
from advisor.measure.cpu_readings import (
    CpuSnapshot,
    Process,
    api_server_threads,
    between,
    busiest,
    busiest_thread,
    core_ticks,
    family,
    read_process,
    used_ticks,
)
from advisor.records import Foreign

STAT = """cpu  300 10 100 1000 20 5 6 40 99 0
cpu0 100 10 50 500 10 5 6 30 99 0
cpu1 200 0 50 500 10 0 0 10 0 0
intr 12345 0 0
"""


def test_ticks_of_the_cores_that_may_be_used() -> None:
    assert core_ticks(STAT, set()) == (2, 410, 40, 1481)
    assert core_ticks(STAT, {1}) == (1, 250, 10, 770)
    assert core_ticks("", {0}) == (0, 0, 0, 0)


def test_a_process_whose_name_holds_brackets_and_spaces() -> None:
    line = "77 (a) b (c) S 7 77 77 0 -1 4194304 1 2 3 4 50 6 700 80 20 0 1 0 12 0 0"
    assert read_process(line) == Process(7, "a) b (c", 56, 780)


def test_a_family_has_grandchildren_and_no_strangers() -> None:
    known = {1: Process(0, "init", 0), 5: Process(1, "us", 0), 6: Process(5, "x", 0), 7: Process(6, "y", 0), 8: Process(1, "z", 0)}
    assert family(known, 5) == {5, 6, 7}


def test_a_child_that_ended_is_counted_once_by_its_parent() -> None:
    """6 had used 30 and used 20 more before it ended; 5, who collected it, used 10 itself."""
    before = {5: Process(1, "us", 100), 6: Process(5, "x", 30)}
    after = {5: Process(1, "us", 110, 50)}
    assert used_ticks(before, after, {5, 6}) == 30


def test_the_busiest_strangers_are_named_and_the_idle_ones_are_not() -> None:
    before = {8: Process(1, "old", 100, 5000)}
    after = {8: Process(1, "old", 150, 9000), 9: Process(1, "new", 100), 5: Process(1, "us", 900), 10: Process(1, "idle", 1)}
    assert busiest(before, after, {5}, 200.0) == (Foreign(9, "new", cores=0.5), Foreign(8, "old", cores=0.25))


def test_what_lies_between_two_snapshots() -> None:
    before = CpuSnapshot(0.0, 2, 1000, 10, 5000, 0, 100, 0, {5: Process(1, "us", 100)})
    after = CpuSnapshot(10.0, 2, 2500, 110, 7000, 5_000_000, 200, 40, {5: Process(1, "us", 1000), 9: Process(1, "it", 500)})
    use = between(before, after, 5)
    assert (use.cores, use.own_cores, use.foreign_cores) == (2, 0.9, 0.6)
    assert (use.steal_share, use.pressure_share, use.throttled_share) == (0.05, 0.5, 0.4)
    assert use.cpu_processes == (Foreign(9, "it", cores=0.5),)
    assert between(after, after, 5) == cpu_readings.CpuUse()


@pytest.mark.parametrize(
    ("own_groups", "place", "counts"),
    [
        ("0::/pod/x\n", "pod/x", (40, 7)),  # version 2
        ("4:cpu,cpuacct:/docker/y\n0::/\n", "cpu/docker/y", (40, 7)),  # version 1
        ("0::/not/visible\n", "", (40, 7)),  # a container that sees only its own group
        ("0::/pod/x\n", "elsewhere", (None, None)),
    ],
)
def test_the_containers_quota(tmp_path: Path, own_groups: str, place: str, counts: tuple) -> None:
    proc, group = tmp_path / "proc", tmp_path / "cgroup" / place
    (proc / "self").mkdir(parents=True)
    group.mkdir(parents=True, exist_ok=True)
    (proc / "self" / "cgroup").write_text(own_groups)
    (group / "cpu.stat").write_text("usage_usec 99\nnr_periods 40\nnr_throttled 7\n")
    assert cpu_readings.throttling(proc, tmp_path / "cgroup") == counts


def test_no_quota_is_not_a_quota_of_zero(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0\n")
    assert cpu_readings.throttling(tmp_path, tmp_path) == (None, None)


def test_no_proc_tells_nothing(tmp_path: Path) -> None:
    empty = cpu_readings.snapshot(tmp_path / "none", tmp_path / "none")
    assert between(empty, empty, 1) == cpu_readings.CpuUse()


BURN_S = 0.5  # of processor time, however long that takes on a busy machine
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass"


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_a_childs_work_is_ours_and_its_work_counts_for_a_stranger_as_well() -> None:
    """The same burning child: seen from here it is ours, seen from a process that is not its parent it is foreign."""
    before = cpu_readings.snapshot()
    child = subprocess.Popen([sys.executable, "-c", BURN])
    while child.poll() is None:
        time.sleep(0.02)
    after = cpu_readings.snapshot()
    ours, theirs = between(before, after, os.getpid()), between(before, after, 2**22 + 1)
    assert theirs.own_cores == 0
    assert ours.own_cores * (after.at_s - before.at_s) > 0.8 * BURN_S
    assert theirs.foreign_cores - ours.foreign_cores == pytest.approx(ours.own_cores, abs=0.1)


# ---------------------------------------------------------------- the thread of an API server


def thread(proc: Path, pid: int, ticks: int) -> None:
    folder = proc / str(pid) / "task" / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 0 0 0")


def test_the_only_api_server_is_the_launched_process_and_several_have_names(tmp_path: Path) -> None:
    for pid, ticks in {10: 5, 11: 70, 12: 80, 13: 900}.items():
        thread(tmp_path, pid, ticks)
    one = {10: Process(1, "python3", 0), 13: Process(10, "VLLM::EngineCor", 0)}
    assert api_server_threads(one, 10, tmp_path) == {10: 5}
    several = one | {pid: Process(10, "VLLM::APIServer", 0) for pid in (11, 12)} | {14: Process(1, "VLLM::APIServer", 0)}
    assert api_server_threads(several, 10, tmp_path) == {11: 70, 12: 80}
    assert api_server_threads({}, 99, tmp_path) == {}  # it has ended


def test_the_busiest_thread_counts_and_one_that_came_in_between_does_not() -> None:
    second = round(1 / cpu_readings.TICK_S)
    assert busiest_thread({11: 0, 12: 0}, {11: second, 12: 3 * second, 13: 9 * second}, 4.0) == 0.75
    assert busiest_thread({}, {13: second}, 4.0) is None and busiest_thread({11: 0}, {11: second}, 0.0) is None


MAIN_SPINS = "print('begun', flush=True)\nwhile True: pass"
OTHER_SPINS = """
import threading, time
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
print("begun", flush=True)
time.sleep(600)
"""
SPUN_S = 0.4  # of processor time, however long that takes on a busy machine


@pytest.mark.parametrize(("code", "busy"), [(MAIN_SPINS, True), (OTHER_SPINS, False)], ids=["first thread", "another thread"])
def test_a_real_process_is_judged_by_its_first_thread(code: str, busy: bool) -> None:
    """Requests are answered in the first one: what tokenizers' threads use does not hold it up."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline()  # its own start is over
            before, begun_s = api_server_threads({}, process.pid), processor_s(process.pid)
            while (spent_s := processor_s(process.pid) - begun_s) < SPUN_S:
                assert process.poll() is None
                time.sleep(0.02)
            share = busiest_thread(before, api_server_threads({}, process.pid), spent_s)
        finally:
            process.kill()
    assert share > 0.8 if busy else share < 0.2


def processor_s(pid: int) -> float:
    """What all threads of a process have used."""
    return read_process(Path(f"/proc/{pid}/stat").read_text()).ticks * cpu_readings.TICK_S
