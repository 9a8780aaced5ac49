"""One contract for both ways to start a program: executed by its guard, and forked from the launcher."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from advisor.launch import process as process_module
from advisor.launch.launcher import Launcher
from advisor.launch.process import KILLED, Grace, GuardedProcess

from .conftest import SHORT
from .test_server import living, wait_for, wait_gone

WARM_SITE = Path(__file__).resolve().parent.parent / "fakes" / "warm_site"
ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": str(WARM_SITE), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}

Start = Callable[..., GuardedProcess]


def log_lines(process: GuardedProcess, count: int = 1) -> list[str]:
    """The program's own lines, as soon as so many are whole."""

    def whole() -> list[str]:
        text = process.log.read_text() if process.log.exists() else ""  # type: ignore[attr-defined]
        return text.split("\n")[:-1]

    assert wait_for(lambda: len(whole()) >= count), whole()
    return whole()


def wait_for_exit(process: GuardedProcess) -> int | None:
    wait_for(lambda: process.exit_code() is not None)
    return process.exit_code()


class ProcessContract:
    """Subclasses give a fixture `start(name, *words, env=.., scratch=.., grace=..)`: a GuardedProcess with its log at `.log`."""

    def facts(self, start: Start, **options) -> dict:
        process = start("facts", "a b", **options)
        return json.loads(log_lines(process, 2)[1])

    def test_it_is_a_process_of_its_own(self, start: Start, tmp_path: Path) -> None:
        facts = self.facts(start, env={"VLLM_OF_THIS_LAUNCH": "1"})
        assert facts["session"] is True
        assert facts["argv"] == ["facts", "a b"] and facts["argv0"] == "program.py"
        assert facts["main"] == "program"
        assert facts["cwd"] == str(tmp_path)
        assert facts["env"]["VLLM_OF_THIS_LAUNCH"] == "1"
        assert str(WARM_SITE) in facts["path"]
        assert not [entry for entry in facts["path"] if entry.endswith("target")]

    def test_it_has_the_log_and_nothing_of_the_advisors(self, start: Start, tmp_path: Path) -> None:
        files = self.facts(start)["files"]
        assert files.pop("0") == os.devnull
        assert files.pop("1") == files.pop("2") == str(tmp_path / "log")
        others = [name for name in files.values() if not name.startswith(f"/proc/{os.sep}") and "/fd" not in name]
        assert others == []

    def test_signals_are_as_python_begins_with_them(self, start: Start) -> None:
        facts = self.facts(start)
        assert facts["ignored"] == [signal.SIGPIPE]
        assert facts["interrupt"] is True
        assert facts["wakeup"] == -1

    @pytest.mark.parametrize("code", [0, 3])
    def test_an_exit_code_is_told(self, start: Start, code: int) -> None:
        process = start("exit", str(code))
        assert wait_for_exit(process) == code
        assert process.stop() == []

    def test_an_exception_is_exit_code_1_and_stands_in_the_log(self, start: Start) -> None:
        process = start("raise")
        assert wait_for_exit(process) == 1
        assert process.log.read_text().endswith("ValueError: on purpose\n")

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
    def test_a_signal_is_told(self, start: Start, number: int) -> None:
        assert wait_for_exit(start("signal", str(int(number)))) == -number

    def test_all_it_started_is_seen_and_ended(self, start: Start) -> None:
        # A process that is killed only because it was held up would count as stubborn too.
        process = start("family", grace=Grace(leader_s=20.0, group_s=2.0))
        pids = [int(line.split()[1]) for line in log_lines(process, 3)]
        assert {member.pid for member in process.processes()} >= set(pids)
        assert process.stop() == [] == process.left
        assert living(pids) == []
        assert len({*process.stubborn} & {*pids}) == 1  # the one in a session of its own is deaf to SIGTERM

    def test_a_deaf_one_is_killed_after_its_grace(self, start: Start) -> None:
        process = start("deaf", grace=SHORT)
        log_lines(process, 2)
        begun = time.monotonic()
        assert process.stop() == []
        assert SHORT.leader_s <= time.monotonic() - begun < 10
        assert process.exit_code() == KILLED

    def test_shared_memory_of_a_killed_one_is_removed(self, start: Start) -> None:
        """A hanging engine would leave 0.4 GiB, launch by launch: its resource tracker must not be killed with it."""
        process = start("shared", grace=SHORT)
        memory = Path("/dev/shm", log_lines(process, 3)[1].split()[1])
        assert memory.exists()
        assert process.stop() == []
        assert process.exit_code() == KILLED and not memory.exists()

    def test_stopping_twice_is_stopping_once(self, start: Start) -> None:
        process = start("sleep")
        assert process.exit_code() is None
        assert process.stop() == process.stop() == []

    def test_its_cpu_time_is_counted(self, start: Start) -> None:
        process = start("spin")
        log_lines(process)
        before = process.cpu_s()
        assert wait_for(lambda: process.cpu_s() > before)

    def test_scratch_goes_with_it(self, start: Start, tmp_path: Path) -> None:
        scratch = tmp_path / "scratch"
        process = start("sleep", scratch=str(scratch))
        log_lines(process)
        (scratch / "left").touch()
        process.stop()
        assert not scratch.exists()

    def test_it_ends_with_its_guard(self, start: Start) -> None:
        process = start("sleep")
        log_lines(process)
        os.kill(process.guard_pid, signal.SIGKILL)
        assert wait_gone([process.pid]) == []
        assert process.exit_code() == KILLED
        assert process.stop() == []

    def test_a_killed_guard_leaves_nothing(self, start: Start, tmp_path: Path) -> None:
        """Shared memory, sockets and processes are removed without it."""
        scratch = tmp_path / "scratch"
        process = start("shared", scratch=str(scratch))
        _, (_, memory), (_, child) = map(str.split, log_lines(process, 3))
        (scratch / "left").touch()
        os.kill(process.guard_pid, signal.SIGKILL)
        assert wait_gone([process.pid]) == []
        assert living([int(child)]) and Path("/dev/shm", memory).exists()
        assert process.stop() == []
        assert wait_gone([int(child)]) == []
        assert not Path("/dev/shm", memory).exists() and not scratch.exists()

    @pytest.mark.parametrize("stuck", [False, True])
    def test_a_start_that_is_interrupted_leaves_nothing(self, start: Start, tmp_path: Path, monkeypatch, stuck) -> None:
        """Ctrl-C when the guard has its order and nobody has heard of it yet; where it does not end either, it is killed."""
        scratch, log, seen = tmp_path / "scratch", tmp_path / "log", list[str]()

        def interrupted(process: GuardedProcess) -> int:
            assert wait_for(lambda: log.exists() and log.read_text().count("\n") == 3)
            (scratch / "left").touch()
            seen.extend([*(line.split()[1] for line in log.read_text().splitlines()), str(process.guard_pid)])
            if stuck:
                os.kill(process.guard_pid, signal.SIGSTOP)
                monkeypatch.setattr(process_module, "GUARD_SLACK_S", 0.5)
            raise KeyboardInterrupt

        monkeypatch.setattr(GuardedProcess, "_first_pid", interrupted)
        with pytest.raises(KeyboardInterrupt):
            start("shared", scratch=str(scratch))
        server, memory, child, guard = seen
        assert wait_gone([int(server), int(child), int(guard)]) == []
        assert not Path("/dev/shm", memory).exists() and not scratch.exists()

    def test_the_exec_is_when_the_clock_starts(self, start: Start) -> None:
        before = time.monotonic()
        process = start("sleep")
        assert before <= process.started <= time.monotonic()


@pytest.fixture
def started() -> Iterator[list[GuardedProcess]]:
    processes: list[GuardedProcess] = []
    yield processes
    for process in processes:
        process.stop()


class TestExecuted(ProcessContract):
    @pytest.fixture
    def start(self, tmp_path: Path, started: list[GuardedProcess]) -> Start:
        def start(*words: str, env=None, scratch=None, grace: Grace = SHORT) -> GuardedProcess:
            argv = (sys.executable, "-m", "program", *words)
            process = GuardedProcess(argv, {**ENV, **(env or {})}, tmp_path, tmp_path / "log", grace, scratch)
            process.log = tmp_path / "log"  # type: ignore[attr-defined]
            started.append(process)
            return process

        return start


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    log = tmp_path_factory.mktemp("launcher") / "log"
    with contextlib.closing(Launcher(sys.executable, "LlamaForCausalLM", ENV, log)) as launcher:
        yield launcher


class TestForked(ProcessContract):
    @pytest.fixture
    def start(self, tmp_path: Path, started: list[GuardedProcess], launcher: Launcher) -> Start:
        def start(*words: str, env=None, scratch=None, grace: Grace = SHORT) -> GuardedProcess:
            argv, log = (sys.executable, "-m", "program", *words), tmp_path / "log"
            env = {**ENV, **(env or {})}
            process = GuardedProcess(argv, env, tmp_path, log, grace, scratch, guard=launcher.guard)
            process.log = log  # type: ignore[attr-defined]
            started.append(process)
            return process

        return start

    def test_what_imports_set_is_set_as_in_a_process_that_imports(self, start: Start) -> None:
        facts = self.facts(start)
        assert facts["env"]["FAKE_SET_BY_IMPORT"] == "1"
        assert facts["env"]["VLLM_WORKER_MULTIPROC_METHOD"] == "fork"
        assert set(facts["env"]) - {"LC_CTYPE"} == {*ENV, "FAKE_SET_BY_IMPORT", "VLLM_WORKER_MULTIPROC_METHOD"}

    def test_a_forked_engine_does_not_hold_the_servers_port(self, start: Start, unused_port: int) -> None:
        process = start("listen", "--port", str(unused_port))
        assert json.loads(log_lines(process, 2)[1]) == [os.devnull, "socket"]

    def test_the_launcher_goes_on_and_has_no_zombies(self, start: Start, launcher: Launcher) -> None:
        for _ in range(3):
            start("sleep").stop()
        assert wait_for(lambda: psutil.Process(launcher.pid).children() == [])

    def test_it_does_not_need_the_launcher_any_more(self, tmp_path: Path) -> None:
        launcher = Launcher(sys.executable, None, ENV, tmp_path / "launcher.log")
        argv = (sys.executable, "-m", "program", "sleep")
        process = GuardedProcess(argv, ENV, tmp_path, tmp_path / "log", SHORT, guard=launcher.guard)
        pid = launcher.pid
        os.kill(pid, signal.SIGKILL)
        launcher.close()
        assert living([pid]) == [] and process.exit_code() is None
        assert process.stop() == []


def test_neither_launcher_nor_server_outlives_a_killed_advisor(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from advisor.launch.process import Grace, GuardedProcess
        from advisor.launch.launcher import Launcher
        env, folder = {ENV!r}, Path({str(tmp_path)!r})
        launcher = Launcher(sys.executable, None, env, folder / "launcher.log")
        argv = (sys.executable, "-m", "program", "family")
        process = GuardedProcess(argv, env, folder, folder / "log", Grace(0.3, 0.2), guard=launcher.guard)
        while not (folder / "log").exists() or (folder / "log").read_text().count("\\n") < 3:
            time.sleep(0.02)
        print(launcher.pid, process.guard_pid, *(member.pid for member in process.processes()), flush=True)
        time.sleep(60)
        """
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env, text=True) as advisor:
        pids = [int(word) for word in advisor.stdout.readline().split()]
        assert len(living(pids)) == len(pids) >= 5
        advisor.kill()
    assert wait_gone(pids) == []


def test_a_launcher_that_still_imports_does_not_outlive_a_killed_advisor(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import os, sys
        from pathlib import Path
        from advisor.launch import launcher
        started = launcher.subprocess.Popen
        def tell(*args, **options):
            process = started(*args, **options)
            print(process.pid, flush=True)
            return process
        launcher.subprocess.Popen = tell
        env = {{**{ENV!r}, "FAKE_IMPORT": "slow"}}
        launcher.Launcher(sys.executable, None, env).wait()
        """
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env, text=True) as advisor:
        pid = int(advisor.stdout.readline())
        advisor.kill()
    assert wait_gone([pid]) == []  # the import would take a minute
