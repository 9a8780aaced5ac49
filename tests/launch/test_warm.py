"""The launcher with a `vllm` that is only the fake engine: what it refuses, survives, leaves behind; servers that come from it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from advisor.launch import launcher as launcher_module
from advisor.launch import server as server_module
from advisor.launch.failure import LaunchFailed
from advisor.launch.launcher import Launcher, LauncherGone
from advisor.launch.process import Grace, GuardedProcess
from advisor.launch.server import FORKED_LOG, Server, launcher_environment
from advisor.launch.warm import ColdStart, WarmLauncher
from advisor.records import Command, Outcome
from advisor.target_process import script_path

from .conftest import CPU, IMPATIENT, PATIENT, SHORT
from .test_process_contract import ENV, WARM_SITE
from .test_server import living, wait_for, wait_gone
from .test_server_contract import ServerContract

MODULE = ("-m", "vllm.entrypoints.cli.main", "serve", "some/model")
SHARED = {"PYTHONPATH": str(WARM_SITE), "FAKE_TIME_SCALE": "0.1"}
FAST = Grace(leader_s=0.05, group_s=0.05)


@contextlib.contextmanager
def launcher(folder: Path, **env: str) -> Iterator[Launcher]:
    with contextlib.closing(
        Launcher(sys.executable, "LlamaForCausalLM", {**ENV, **env}, folder / "launcher.log")
    ) as running:
        running.wait()
        yield running


@pytest.fixture
def make_warm(tmp_path: Path) -> Iterator[Callable[..., WarmLauncher]]:
    """A WarmLauncher whose launches share these variables."""
    with contextlib.ExitStack() as stack:

        def make(kind: str = "cuda", **env: str) -> WarmLauncher:
            warm = WarmLauncher(sys.executable, None, kind, {**SHARED, **env}, tmp_path / "launcher.log")
            stack.callback(warm.close)
            return warm

        yield make


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Server]:
    """A server of the fake engine, forked from `warm` if it can be; `told` takes what it says of that."""
    count = iter(range(100))

    def make(warm: WarmLauncher, *options: str, told: list[str] | None = None, limits=PATIENT, **env: str) -> Server:
        name = f"advisor-{next(count)}"
        command = Command((sys.executable, *MODULE, *options), {**warm._env, **env})
        retried = told.append if told is not None else None
        return Server(command, name, tmp_path / name, CPU, limits, grace=SHORT, retried=retried, warm=warm)

    return make


# ---------------------------------------------------------------- what stands against a fork


def test_it_imports_once_for_all_launches(tmp_path: Path, make_warm, serve) -> None:
    imports = tmp_path / "imports"
    warm = make_warm(FAKE_IMPORTS=str(imports))
    for number in range(3):
        with serve(warm) as running:
            assert running.launcher == "warm"
            assert (running.launcher_s > 0) == (number == 0) and running.lost_s == 0
    assert imports.read_text().split() == [str(warm.pid)]


@pytest.mark.parametrize(
    ("kind", "why"),
    [("cuda", "initialised CUDA"), ("thread", "started a thread (Pool)"), ("process", "started a process")],
)
def test_an_import_that_does_harm_is_named_and_left_out(tmp_path: Path, kind: str, why: str) -> None:
    with launcher(tmp_path, FAKE_IMPORT=kind) as running:
        assert running.facts["left_out"] == ["vllm.compilation.backends"]
        assert f"importing vllm.compilation.backends {why}" in (tmp_path / "launcher.log").read_text()
        assert running.facts["threads"] == 1


def test_an_import_that_only_asks_for_the_gpu_does_no_harm(tmp_path: Path) -> None:
    """FlashInfer's does; left out, it would be imported by each server, and the launcher would have begun anew for it."""
    with launcher(tmp_path, FAKE_IMPORT="asks") as running:
        assert running.facts["left_out"] == [] and running.facts["failed"] == []


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("cuda_everywhere", "importing vllm.v1.engine.async_llm initialised CUDA"),
        ("broken", "vLLM cannot be imported: vllm.entrypoints.cli.serve: ImportError: libcudart.so.13"),
        ("die", "it ended with exit code 7"),
    ],
)
def test_a_launcher_of_no_use_says_why(tmp_path: Path, kind: str, why: str) -> None:
    with pytest.raises(LauncherGone) as caught, launcher(tmp_path, FAKE_IMPORT=kind):
        pass
    assert why in str(caught.value)
    assert [child for child in psutil.Process().children() if "warm_serve" in " ".join(child.cmdline())] == []


def test_a_python_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(LauncherGone, match="cannot be started"):
        Launcher("/no/such/python", None, ENV, tmp_path / "log")


def test_what_was_read_or_set_during_the_imports_is_known(tmp_path: Path) -> None:
    with launcher(tmp_path) as running:
        used = running.facts["used"]
    assert {"VLLM_READ_AT_IMPORT", "FAKE_SET_BY_IMPORT", "FAKE_IMPORT"} <= set(used)
    assert "VLLM_RPC_BASE_PATH" not in used


# ---------------------------------------------------------------- cold starts, and why


@pytest.mark.parametrize(
    ("options", "env", "why"),
    [
        ((), {"VLLM_READ_AT_IMPORT": "1"}, "launched cold: VLLM_READ_AT_IMPORT is read when vLLM is imported"),
        ((), {"OMP_NUM_THREADS": "3"}, "launched cold: OMP_NUM_THREADS may be read when a library is loaded"),
        (
            ("--tensor-parallel-size", "2"),
            {},
            "launched cold: --tensor-parallel-size 2: forking was tried with one device",
        ),
    ],
)
def test_what_may_come_out_different_is_launched_cold(make_warm, serve, options, env, why: str) -> None:
    warm, told = make_warm(), []
    with serve(warm, *options, told=told, **env) as running:
        assert running.launcher == "cold"
    assert len(told) == 1 and told[0].startswith(why)
    with serve(warm, *options, told=told, **env):
        assert len(told) == 1  # it is told once
    with serve(warm, told=told, VLLM_NOT_READ="1") as running:
        assert running.launcher == "warm" and len(told) == 1


def test_another_kind_of_machine_starts_no_launcher(make_warm, serve) -> None:
    warm, told = make_warm(kind="rocm"), []
    with serve(warm, told=told) as running:
        assert running.launcher == "cold"
    assert told == ["launched cold: forking was tried on cuda and cpu, not on rocm"] and warm.pid is None


def test_a_launcher_is_made_anew_when_what_all_share_has_changed(make_warm, serve, monkeypatch) -> None:
    warm = make_warm()
    with serve(warm):
        first = warm.pid
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    with serve(warm) as running:
        assert running.launcher == "warm"
        assert warm.pid != first and living([first]) == []


# ---------------------------------------------------------------- begun before the first launch


@pytest.fixture
def make_begun(tmp_path: Path) -> Iterator[Callable[..., WarmLauncher]]:
    """A WarmLauncher with a launcher that was begun with these variables, which may be others than its launches have."""
    with contextlib.ExitStack() as stack:

        def make(shared: dict[str, str], **env: str) -> tuple[WarmLauncher, int]:
            environment = launcher_environment(os.environ, {}, {**shared, **env}, sys.executable)
            begun = Launcher(sys.executable, None, environment)
            warm = WarmLauncher(sys.executable, None, "cuda", shared, tmp_path / "launcher.log", begun=begun)
            stack.callback(warm.close)
            return warm, begun.pid

        yield make


def test_a_launcher_that_was_begun_before_is_used(make_begun, serve, tmp_path: Path) -> None:
    imports = tmp_path / "imports"
    warm, pid = make_begun({**SHARED, "FAKE_IMPORTS": str(imports)})
    with serve(warm) as running:
        assert running.launcher == "warm" and warm.pid == pid
        assert running.launcher_s > 0 and running.launcher_import_s > 0
    with serve(warm) as running:
        assert warm.pid == pid and running.launcher_s == running.launcher_import_s == 0
    assert imports.read_text().split() == [str(pid)]


def test_what_its_imports_took_is_known_without_waiting_for_them(make_begun, serve) -> None:
    warm, pid = make_begun(SHARED)
    assert wait_for(lambda: select.select([warm._launcher._socket], [], [], 0)[0])
    time.sleep(1.0)  # ready, and nobody asks
    took = time.monotonic() - warm._launcher._begun
    with serve(warm) as running:
        assert warm.pid == pid and running.launcher_s < 0.5
        assert 0 < running.launcher_import_s <= took - 1.0


def test_imports_that_waited_for_a_disk_took_no_longer_for_that(tmp_path: Path, make_warm, serve) -> None:
    """Nor for the inspection, which has the cores meanwhile: an executed server will find the files read, and cores."""
    with serve(make_warm(FAKE_IMPORT="disk")) as running:
        assert running.launcher_s > 2 > running.launcher_import_s > 0


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "VLLM_READ_AT_IMPORT"])
def test_one_that_was_begun_with_something_else_is_not_used(make_begun, serve, name: str) -> None:
    """The second is no reason before it is known what the imports read."""
    warm, pid = make_begun(SHARED, **{name: "/somewhere"})
    with serve(warm) as running:
        assert running.launcher == "warm" and warm.pid != pid
        assert living([pid]) == []


def test_a_guard_is_asked_for_only_when_the_launcher_is_ready(tmp_path: Path) -> None:
    """What it is sent while it imports would end it."""
    with contextlib.closing(Launcher(sys.executable, None, ENV)) as running:
        argv = (sys.executable, "-m", "program", "sleep")
        process = GuardedProcess(argv, ENV, tmp_path, tmp_path / "log", FAST, guard=running.guard)
        assert running.facts and process.stop() == []


# ---------------------------------------------------------------- deaths


def test_a_dead_launcher_is_made_anew_once(make_warm, serve) -> None:
    warm, told = make_warm(), []
    with serve(warm, told=told):
        pass
    os.kill(warm.pid, signal.SIGKILL)
    with serve(warm, told=told) as running:
        assert running.launcher == "warm"
    os.kill(warm.pid, signal.SIGKILL)
    with serve(warm, told=told) as running:
        assert running.launcher == "cold"
    with serve(warm, told=told) as running:
        assert running.launcher == "cold"
    assert told == ["launched cold: the launcher cannot be used: it ended by signal 9"]
    assert warm.pid is None


def test_cuda_is_looked_for_before_each_fork(make_warm, serve) -> None:
    """It was not there after the imports: such a launcher is made anew once, and then given up."""
    warm, told = make_warm(FAKE_IMPORT="cuda_later"), []
    with serve(warm, told=told) as running:
        assert running.launcher == "warm"
    first = warm.pid
    os.kill(first, signal.SIGUSR1)
    with serve(warm, told=told) as running:
        assert running.launcher == "warm" and warm.pid != first and told == []
    os.kill(warm.pid, signal.SIGUSR1)
    with serve(warm, told=told) as running:
        assert running.launcher == "cold"
    assert told == ["launched cold: the launcher cannot be used: the launcher itself initialised CUDA"]
    assert warm.pid is None


def test_a_launcher_outlives_the_thread_that_started_it(make_warm, serve) -> None:
    warm = make_warm()

    def launch() -> str:
        with serve(warm) as running:
            return running.launcher

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(launch).result() == "warm"
    first = warm.pid
    assert launch() == "warm" and warm.pid == first


def test_a_launcher_that_does_not_answer_is_given_up(make_warm, serve, monkeypatch) -> None:
    monkeypatch.setattr(launcher_module, "LEAVE_S", 0.3)
    warm = make_warm()
    with serve(warm):
        stopped = warm.pid
    answer_s = launcher_module.ANSWER_S
    monkeypatch.setattr(launcher_module, "ANSWER_S", 0.5)
    # The one that is made anew may be held up by others, and has its usual time.
    warm._waiting = lambda _what: monkeypatch.setattr(launcher_module, "ANSWER_S", answer_s)
    os.kill(stopped, signal.SIGSTOP)
    with serve(warm) as running:
        assert running.launcher == "warm" and warm.pid != stopped
    assert living([stopped]) == []


def children_of(pid: int) -> list[int]:
    """As soon as there are some."""
    wait_for(lambda: psutil.Process(pid).children())
    return [child.pid for child in psutil.Process(pid).children()]


def test_what_its_imports_started_ends_with_it(tmp_path: Path, monkeypatch) -> None:
    """A child that asks CUDA for an import, or vLLM's own that looks at a model's class: minutes of work for nobody."""
    monkeypatch.setattr(launcher_module, "LEAVE_S", 60.0)  # which an idle launcher has: one that imports needs nothing of it
    running = Launcher(sys.executable, None, {**ENV, "FAKE_IMPORT": "asks", "FAKE_ASK_S": "300"}, tmp_path / "log")
    asking, begun = children_of(running.pid), time.monotonic()
    assert len(asking) == 1
    running.close()
    assert wait_gone([running.pid, *asking]) == [] and time.monotonic() - begun < 50
    running.close()


def test_one_of_no_use_leaves_no_process_behind(tmp_path: Path) -> None:
    """It leaves as soon as it has said why, and what an import started does not end with it."""
    running = Launcher(sys.executable, None, {**ENV, "FAKE_IMPORT": "process_everywhere"}, tmp_path / "log")
    with contextlib.closing(running), pytest.raises(LauncherGone) as caught:
        running.wait()
    started = re.search(r"async_llm started a process \((\d+)\)", str(caught.value))
    assert started and wait_gone([int(started[1])]) == []


def test_imports_without_an_end_are_not_waited_for_twice(make_warm, serve, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(launcher_module, "IMPORT_S", 1.0)
    imports, told = tmp_path / "imports", []
    warm = make_warm(FAKE_IMPORT="slow", FAKE_IMPORTS=str(imports))
    warm._waiting = lambda _what: wait_for(imports.exists)  # its interpreter may take longer than that second to start
    with serve(warm, told=told) as running:
        assert running.launcher == "cold" and len(imports.read_text().split()) == 2  # it and the server
    assert told == ["launched cold: the launcher cannot be used: its imports did not end within 1 s"]


@pytest.mark.parametrize("fault", ["killed", "exit_at_start", "oom_at_load", "hang"])
def test_a_failing_server_leaves_the_launcher_alive_and_clean(make_warm, serve, fault: str, monkeypatch) -> None:
    monkeypatch.setattr(server_module, "SIGNS_EVERY_S", 0.2)
    warm = make_warm(FAKE_FAULT=fault)
    launched = serve(warm, limits=IMPATIENT if fault == "hang" else PATIENT)
    with pytest.raises(LaunchFailed), launched:
        pass
    assert warm.pid is None or psutil.Process(warm.pid).is_running()
    assert launched.launcher == (
        "warm" if fault == "oom_at_load" else "cold"
    )  # blamed only for what its own start does


def test_fifty_launches_leave_nothing(make_warm, serve, monkeypatch, tmp_path: Path) -> None:
    def open_files(pid: int) -> int:
        return psutil.Process(pid).num_fds()

    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        warm = make_warm()
        with serve(warm):
            pass
        before, ours = open_files(warm.pid), open_files(os.getpid())
        for _ in range(5):  # with sockets, a port and an engine's process
            with serve(warm) as running:
                assert running.launcher == "warm"
        env, argv = warm._launcher.env, (sys.executable, "-m", "program", "family")
        for number in range(45):
            log, scratch = tmp_path / f"log-{number}", f"{folder}/advisor-{number}"
            process = GuardedProcess(argv, env, tmp_path, log, FAST, scratch, guard=warm._launcher.guard)
            assert process.stop() == []
        assert wait_for(lambda: psutil.Process(warm.pid).children() == [])
        assert (open_files(warm.pid), open_files(os.getpid())) == (before, ours)
        assert os.listdir(folder) == []
        assert psutil.Process(warm.pid).num_threads() == 1


# ---------------------------------------------------------------- starts that only fail in a fork


def test_a_fork_that_cuda_refuses_is_tried_cold_and_given_up(make_warm, serve) -> None:
    warm, told = make_warm(FAKE_FORK_FAULT="cuda"), []
    launched = serve(warm, told=told)
    with launched as running:
        assert running.launcher == "cold" and running.lost_s > 0
    assert "Cannot re-initialize CUDA in forked subprocess" in (launched.folder / FORKED_LOG).read_text()
    assert len(told) == 1 and told[0].startswith("the start of a forked server failed, the second was not forked")
    with serve(warm, told=told) as running:
        assert running.launcher == "cold"
    assert told[1].startswith(
        "launched cold: a server started only when it was not forked: RuntimeError: Cannot re-init"
    )
    assert warm.pid is None


def test_other_failures_of_a_fork_are_forgiven_once(make_warm, serve) -> None:
    warm = make_warm(FAKE_FORK_FAULT="other")
    for _ in range(2):
        with serve(warm) as running:
            assert running.launcher == "cold" and (running.folder / FORKED_LOG).exists()
    with serve(warm) as running:
        assert running.launcher == "cold" and not (running.folder / FORKED_LOG).exists()


def test_a_candidate_that_fails_both_ways_is_to_blame_itself(make_warm, serve) -> None:
    warm = make_warm(FAKE_FAULT="exit_at_start")
    for _ in range(3):
        with pytest.raises(LaunchFailed) as caught, serve(warm):
            pass
        assert caught.value.outcome is Outcome.FAILED_TO_START
    assert warm._off is None


# ---------------------------------------------------------------- the script


def test_the_script_keeps_its_neighbours_out_of_the_path(tmp_path: Path) -> None:
    """advisor/target/ holds files whose names could hide installed modules."""
    folder = str(script_path("warm_serve").parent)
    with launcher(tmp_path) as running:
        assert folder not in json.dumps(running.facts)


class TestForkedFakeVllm(ServerContract):
    """What holds of every server holds of a forked one."""

    options = ("--enforce-eager",)

    @pytest.fixture
    def command(self) -> Command:
        return Command((sys.executable, *MODULE), {"PYTHONPATH": str(WARM_SITE)})

    def server(self, command, folder, *options, env=None) -> Server:
        made = super().server(command, folder, *options, env=env)
        shared = {**command.env, **(env or {})}
        made._warm = self.warm = WarmLauncher(sys.executable, None, "cuda", shared, folder / "launcher.log")
        return made

    @pytest.fixture(autouse=True)
    def forked(self) -> Iterator[None]:
        yield
        assert self.warm.pid is not None  # else all of this was about an executed one
        self.warm.close()

    warm: WarmLauncher


def test_cold_start_is_an_exception_with_its_reason() -> None:
    assert str(ColdStart("why")) == "why" and not ColdStart("why").told
