"""benchmarks/leaks.py: what it calls left, and that it looks at what really is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from advisor.launch.failure import LaunchFailed
from advisor.records import Outcome
from benchmarks import leaks
from benchmarks.launcher import Start

from .conftest import CPU

BEFORE = {
    "gpu_mib": {"GPU-1": 600}, "shared_memory": ["a"], "temporary_files": [], "processes": [7],
    "own_files": {"pipe": 3, "file": 4}, "launcher_files": {"socket": 1}, "launcher_threads": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("after", "more"),
    [
        ({}, {}),
        ({"gpu_mib": {"GPU-1": 640}}, {}),
        ({"gpu_mib": {"GPU-1": 2600}}, {"gpu_mib": {"GPU-1": 2000}}),
        ({"shared_memory": ["a", "psm_b"]}, {"shared_memory": ["psm_b"]}),
        ({"processes": [8]}, {"processes": [8]}),
        ({"own_files": {"pipe": 5, "file": 1}}, {"own_files": {"pipe": 2}}),
        ({"launcher_files": {"socket": 1, "pipe": 1}}, {"launcher_files": {"pipe": 1}}),
        ({"launcher_threads": 3}, {"launcher_threads": 2}),
    ],
)
def test_left_is_what_there_is_more_of(after, more) -> None:
    assert leaks.left(BEFORE, {**BEFORE, **after}) == more


# Leaves an orphan in a session of its own, without environment, that has shared memory mapped; prints its pid.
LEAVES_AN_ORPHAN = """
import subprocess, sys
program = "import mmap, sys, tempfile, time; file = tempfile.NamedTemporaryFile(dir=sys.argv[1], delete=False); "
program += "file.truncate(1); kept = mmap.mmap(file.fileno(), 1); print(flush=True); time.sleep(600)"
words = [sys.executable, "-c", program, sys.argv[1]]
orphan = subprocess.Popen(words, env={}, start_new_session=True, stdout=subprocess.PIPE)
orphan.stdout.readline()
print(orphan.pid)
"""


class Leaky:
    """Launches that leave a pipe, a file, shared memory and a process each."""

    facts = SimpleNamespace(gpu=CPU, engine=SimpleNamespace(vllm_version="0.26.0"))

    def __init__(self, leaving=True, fails_at=None):
        self.warm = SimpleNamespace(pid=os.getpid())
        self.count, self.leaving, self.fails_at, self.kept = 0, leaving, fails_at, []

    def launch(self, config, how):
        assert (config, how) == ("eager", "warm")
        self.count += 1
        if self.count == self.fails_at:
            raise LaunchFailed(Outcome.CRASHED, "no more")
        if self.leaving and self.count > 1:
            self.kept.append(os.pipe())
            os.close(tempfile.mkstemp()[0])
            words = [sys.executable, "-c", LEAVES_AN_ORPHAN, str(leaks.SHARED_MEMORY)]
            self.kept.append(psutil.Process(int(subprocess.check_output(words))))
        return Start(1.0)

    def close(self):
        for one in self.kept:
            if isinstance(one, tuple):
                os.close(one[0]), os.close(one[1])
            else:
                one.kill()
                one.wait(10)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch):
    """The document and exit code of a run with this bench."""
    monkeypatch.setattr(leaks, "SETTLE_S", 0.0)
    monkeypatch.setattr(leaks, "SHARED_MEMORY", tmp_path / "shm")  # that of other tests comes and goes
    leaks.SHARED_MEMORY.mkdir()

    def run(bench: Leaky, launches: int) -> tuple[dict, int]:
        @contextmanager
        def benches(_given):
            yield bench

        monkeypatch.setattr(leaks, "benches", benches)
        path = tmp_path / "leaks.json"
        try:
            leaks.main(["--model", "M", "--output", str(path), "--launches", str(launches)])
            code = 0
        except SystemExit as ended:
            code = ended.code
        finally:
            bench.close()
        return json.loads(path.read_text()), code

    return run


def test_nothing_left_is_exit_code_0(measured) -> None:
    found, code = measured(Leaky(leaving=False), 3)
    assert (found["launches"], found["left"], code) == (3, {}, 0) and len(found["gpu_mib_after_each"]) == 3


def test_all_that_is_left_is_found(measured) -> None:
    found, code = measured(Leaky(), 2)
    left = found["left"]
    assert code == 1 and left["own_files"]["pipe"] >= 4
    assert len(left["temporary_files"]) == len(left["processes"]) == 2 == len(left["shared_memory"])
    assert len(found["processes_at_the_end"]) == 2


def test_a_failed_launch_ends_it_with_what_was_seen(measured) -> None:
    found, code = measured(Leaky(leaving=False, fails_at=3), 5)
    assert (found["launches"], found["left"], code) == (1, {}, 1) and "no more" in found["failed"]


def test_an_end_by_sigterm_keeps_what_was_seen(measured, monkeypatch) -> None:
    bench = Leaky(leaving=False)
    launch = bench.launch

    def ended_at_the_third(config, how):
        if bench.count == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return launch(config, how)

    bench.launch = ended_at_the_third
    found, code = measured(bench, 5)
    assert (found["launches"], code) == (1, 130)
