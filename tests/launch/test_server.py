"""Launching, watching and ending servers of the fake engine: real processes, ports and signals, no vLLM."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import psutil
import pytest

from advisor.engine.logs import parse_active
from advisor.launch import ports, server, stop
from advisor.launch.failure import LaunchFailed
from advisor.launch.leftovers import rendezvous_files
from advisor.launch.process import Grace, GuardedProcess
from advisor.launch.readiness import NO_TIME
from advisor.launch.server import Server
from advisor.records import Command, Outcome

from .conftest import CPU, FAKE, IMPATIENT, IMPATIENT_WITH_CPU, PATIENT, SHORT

MakeServer = Callable[..., Server]


def living(pids: list[int]) -> list[int]:
    """Those of the pids that are still running programs."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            pass
    return found


def wait_for(what: Callable[[], object], limit_s: float = 30.0) -> bool:
    """Whether it came true; the limit is for a machine that others hold up."""
    deadline = time.monotonic() + limit_s
    while not (true := bool(what())) and time.monotonic() < deadline:
        time.sleep(0.02)
    return true


def wait_gone(pids: list[int]) -> list[int]:
    """Those of the pids that are still running programs long after they should have ended."""
    wait_for(lambda: not living(pids))
    return living(pids)


# ---------------------------------------------------------------- a good life


def test_what_a_launch_leaves_to_read(fake_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    events: list[str] = []
    launched = fake_server(args=("--api-key", "sk-1"), on_event=lambda name, at_s: events.append(name))
    begun = time.monotonic()
    with launched as running:
        leader = psutil.Process(running.pids()[0])
        environment = leader.environ()
        assert os.getsid(leader.pid) == leader.pid != os.getsid(0)
        assert os.readlink(f"/proc/{leader.pid}/fd/0") == os.devnull
        assert os.readlink(f"/proc/{leader.pid}/fd/1") == str(running.log_path)
        assert leader.cwd() == os.getcwd()
    assert "VLLM_PORT" not in environment
    assert "TORCH_COMPILE_DISABLE" not in environment
    assert environment["PYTHONSAFEPATH"] == "1"
    record = json.loads((launched.folder / "command.json").read_text())
    assert record["argv"][-6:] == [
        "--host",
        "127.0.0.1",
        "--port",
        str(launched.port),
        "--served-model-name",
        "advisor-test",
    ]
    assert "sk-1" not in json.dumps(record)
    assert record["env"]["FAKE_FAULT"] == ""
    assert parse_active(launched.log_text()).attention_backends == ("FLASH_ATTN",)
    assert [events[0], events[-2], events[-1]] == ["started", "ready", "stopping"]
    assert 0 < launched.start_s < time.monotonic() - begun
    assert launched.stop_s is not None


def test_a_relative_folder_means_the_same_to_the_guard(
    tmp_path: Path, fake_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with fake_server() as running:
        absolute = running
    relative = Server(absolute.command, "advisor-relative", Path("runs/launch"), absolute._gpu)
    with relative:
        pass
    assert "startup complete" in (tmp_path / "runs" / "launch" / "server.log").read_text()


def test_the_interpreters_own_tools_come_first_on_the_path(fake_server: MakeServer) -> None:
    with fake_server() as running:
        path = psutil.Process(running.pids()[0]).environ()["PATH"]
    assert path.split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_two_servers_do_not_disturb_each_other(fake_server: MakeServer) -> None:
    with fake_server(name="advisor-one") as one:
        with fake_server(name="advisor-two") as two:
            assert one.port != two.port
            assert not set(one.pids()) & set(two.pids())
            asked = {"model": "advisor-two", "prompt": "a"}
            wrong = httpx.post(f"{one.base_url}/v1/completions", json=asked, timeout=60)
            assert wrong.status_code == 404
            gone = two.pids()
        assert living(gone) == []
        one.check_alive(ask=True)


def test_an_engine_that_failed_is_not_waited_for(fake_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.launch.server.LAST_WORDS_GRACE_S", 0.2)
    with pytest.raises(LaunchFailed) as caught, fake_server("failed_but_alive"):
        pass
    assert caught.value.outcome is Outcome.FAILED_TO_START
    assert "the fake engine was told to fail" in caught.value.reason


@pytest.mark.slow
def test_thirty_launches_leak_nothing(fake_server: MakeServer) -> None:
    def in_use() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(psutil.Process().children())

    with fake_server():
        pass
    before = in_use()
    for _ in range(27):
        with fake_server():
            pass
    for fault in ("exit_at_start", "no_tokens", "killed"):
        with pytest.raises(LaunchFailed), fake_server(fault):
            pass
    assert in_use() == before


# ---------------------------------------------------------------- starts that fail


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("exit_at_start", Outcome.FAILED_TO_START, "RuntimeError: the fake engine was told to fail"),
        ("silent_exit", Outcome.FAILED_TO_START, "exit code 3"),
        ("bad_option", Outcome.UNSUPPORTED, "unrecognized arguments: --no-such-option"),
        ("unsupported", Outcome.UNSUPPORTED, "FLASHMLA is not valid for this configuration"),
        ("oom_at_load", Outcome.OUT_OF_MEMORY, "out of memory while loading the model"),
        ("oom_at_capture", Outcome.OUT_OF_MEMORY, "out of memory while capturing CUDA graphs"),
        ("kv_too_small", Outcome.OUT_OF_MEMORY, "no memory for the KV cache"),
        ("illegal_memory", Outcome.CRASHED, "illegal memory access"),
        ("killed", Outcome.CRASHED, "ended by SIGKILL"),
        ("hang", Outcome.TIMED_OUT, "no sign of life"),
        ("mumble", Outcome.TIMED_OUT, "no sign of life"),
        ("spin", Outcome.TIMED_OUT, "uses CPU time"),
        ("wrong_port", Outcome.TIMED_OUT, "no sign of life"),
        ("no_tokens", Outcome.FAILED_TO_START, "the completion has no token"),
        ("http_500", Outcome.FAILED_TO_START, "HTTP 500"),
        ("wrong_name", Outcome.FAILED_TO_START, "it answers for the model 'somebody-else'"),
    ],
)
def test_each_fault_is_told_apart(
    fake_server: MakeServer, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: Outcome, reason: str
) -> None:
    monkeypatch.setattr(server, "SIGNS_EVERY_S", 0.2)
    impatient = IMPATIENT_WITH_CPU if fault == "spin" else IMPATIENT
    launched = fake_server(fault, limits=impatient if outcome is Outcome.TIMED_OUT else PATIENT)
    with pytest.raises(LaunchFailed) as caught, launched:
        pytest.fail("it must not get ready")
    assert caught.value.outcome is outcome
    assert reason in caught.value.reason
    assert caught.value.log_path == launched.log_path
    assert not caught.value.retryable
    assert launched.pids() == []
    assert not ports.is_open(launched.port)


def test_where_the_launch_has_had_its_time_that_is_the_reason_and_not_its_silence(
    fake_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SIGNS_EVERY_S", 0.0)
    launched = fake_server("hang", limits=dataclasses.replace(PATIENT, whole_s=0.0, stall_s=-1.0))
    with pytest.raises(LaunchFailed) as caught, launched:
        pytest.fail("it must not get ready")
    assert (caught.value.outcome, caught.value.reason) == (Outcome.INTERRUPTED, f"{NO_TIME}: cut off before it was ready")
    assert not caught.value.retryable and launched.pids() == []


def test_a_server_that_has_had_its_time_is_not_waited_for(fake_server: MakeServer) -> None:
    """It stalls: nobody waits the two minutes that an answer may take, and it is not blamed."""
    with pytest.raises(LaunchFailed) as caught, fake_server("stalls_after_n:1", limits=PATIENT) as launched:
        launched.ends_at = time.monotonic() + 2.0
        launched.check_alive(ask=True)
    assert (caught.value.outcome, caught.value.reason) == (
        Outcome.INTERRUPTED,
        f"{NO_TIME}: cut off while it was asked for a token",
    )
    with pytest.raises(LaunchFailed) as caught, fake_server(name="sound", limits=PATIENT) as launched:
        launched.ends_at = time.monotonic()
        launched.check_alive()
    assert (caught.value.outcome, caught.value.reason) == (Outcome.INTERRUPTED, f"{NO_TIME}: cut off while it was measured")


def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    command = Command(("/no/such/python", "-m", "vllm"))
    with pytest.raises(LaunchFailed) as caught, Server(command, "advisor-test", tmp_path, CPU, PATIENT):
        pass
    assert "cannot execute /no/such/python" in caught.value.reason


def test_a_slow_start_that_moves_is_waited_for(fake_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SIGNS_EVERY_S", 0.1)
    limits = dataclasses.replace(IMPATIENT, stall_s=4.0)  # longer than others may hold it up
    with fake_server("slow_start:5", limits=limits) as running:
        assert running.start_s > 5.0 > limits.stall_s


# ---------------------------------------------------------------- somebody else's port


class Stranger(BaseHTTPRequestHandler):
    """Answers every completion as if it were the launched server."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"model": asked["model"], "usage": {"completion_tokens": 4}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[int]:
    """A port on which this test's own process listens and answers, shared with whoever sets SO_REUSEPORT."""
    listening = HTTPServer(("127.0.0.1", ports.free_port()), Stranger, bind_and_activate=False)
    listening.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.server_bind()
    listening.server_activate()
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
    thread.start()
    yield listening.server_port
    listening.shutdown()
    listening.server_close()
    thread.join()


@pytest.mark.parametrize("fault", ["", "reuse_port", "hang"])
def test_a_stranger_on_the_port_is_noticed_and_avoided(
    fake_server: MakeServer, stranger: int, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """With reuse_port both listen at once; with hang only the stranger answers, and answers well."""
    free = ports.free_port()
    offered = iter([stranger, free])
    monkeypatch.setattr(ports, "free_port", lambda avoid=(): next(offered))
    launched = fake_server(fault, limits=dataclasses.replace(IMPATIENT, stall_s=3.0) if fault == "hang" else PATIENT)
    if fault == "hang":
        with pytest.raises(LaunchFailed), launched:
            pass
    else:
        with launched as running:
            assert running.port == free
            assert ports.foreign(ports.listeners(free), running.pids()) == []
    assert (launched.folder / server.FIRST_LOG).exists()
    assert next(offered, None) is None


def test_a_stranger_on_every_port_ends_the_launch_and_is_named(
    fake_server: MakeServer, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "free_port", lambda avoid=(): stranger)
    with pytest.raises(LaunchFailed) as caught, fake_server("reuse_port"):
        pass
    assert caught.value.outcome is Outcome.FAILED_TO_START
    assert caught.value.retryable
    assert f"pid {os.getpid()} (" in caught.value.reason
    assert ports.is_open(stranger)  # and it was left alone


# ---------------------------------------------------------------- death while serving


@pytest.mark.parametrize("fault", ["die_after_n:2", "engine_dies"])
def test_death_after_ready_is_a_crash(fake_server: MakeServer, fault: str) -> None:
    with fake_server(fault) as running:
        request = {"model": running.served_name, "prompt": "a b", "max_tokens": 1}
        if fault == "engine_dies":
            assert httpx.get(f"{running.base_url}/health", timeout=60).status_code == 200
        else:
            httpx.post(f"{running.base_url}/v1/completions", json=request, timeout=60)
        assert wait_for(lambda: not running._engine <= set(running.pids()))  # one of those that were there at the first token
        with pytest.raises(LaunchFailed) as caught:
            running.check_alive()
    assert caught.value.outcome is Outcome.CRASHED
    told = "SIGKILL" if fault != "engine_dies" else "its engine does not answer"
    assert told in caught.value.reason


def test_a_missing_helper_process_alone_is_no_crash(fake_server: MakeServer) -> None:
    with fake_server() as running:
        os.kill(running.pids()[-1], signal.SIGKILL)  # the fake's child has no part in answering
        wait_gone(running.pids()[1:])
        running.check_alive()
        running.check_alive()


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("fault", ["ignore_sigterm", "orphan_child"])
def test_nothing_survives_the_end(fake_server: MakeServer, fault: str) -> None:
    # A process that is killed only because it was held up would be told of as left behind too.
    grace = Grace(leader_s=20.0, group_s=2.0) if fault == "orphan_child" else SHORT
    launched = fake_server(fault, grace=grace)
    with launched as running:
        pids = running.pids()
        sessions = {os.getsid(pid) for pid in pids}
        assert len(sessions) == (2 if fault == "orphan_child" else 1)
    assert living(pids) == []
    assert not ports.is_open(launched.port)
    assert launched.stop_s < 15  # what does not end at SIGKILL is waited for 20 s, and an orphan is not the leader
    assert len(launched.leftovers) == (fault == "orphan_child")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_nothing_survives_an_exception(fake_server: MakeServer, error: type[BaseException]) -> None:
    with pytest.raises(error), fake_server() as running:
        pids = running.pids()
        raise error
    assert living(pids) == []


def test_ctrl_c_during_the_start(fake_server: MakeServer) -> None:
    pids: list[int] = []

    def press(event: str, at_s: float) -> None:
        if event == "asking for the first token":
            pids.extend(launched.pids())
            raise KeyboardInterrupt

    launched = fake_server(on_event=press)
    with pytest.raises(KeyboardInterrupt), launched:
        pytest.fail("it must not get ready")
    assert pids
    assert living(pids) == []


@pytest.fixture
def ctrl_c_is_heard():
    """A shell that starts tests in the background has SIGINT ignored in them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_a_second_ctrl_c_does_not_wait_for_the_grace(fake_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = Grace(leader_s=60.0, group_s=60.0)
    wait, timers = GuardedProcess._wait_for_guard, []

    def press_while_it_waits(process: GuardedProcess) -> None:
        if not timers:
            timers.append(threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()
        wait(process)

    monkeypatch.setattr(GuardedProcess, "_wait_for_guard", press_while_it_waits)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), fake_server("ignore_sigterm", grace=patient) as running:
        pids = running.pids()
    timers[0].join()
    assert living(pids) == []
    assert time.monotonic() - begun < 20


def test_what_cannot_be_ended_is_an_error_with_its_pid(
    monkeypatch: pytest.MonkeyPatch, fake_server: MakeServer
) -> None:
    real = GuardedProcess.stop
    monkeypatch.setattr(GuardedProcess, "stop", lambda self: [*real(self), 4711])
    with pytest.raises(stop.NotStopped, match="pid 4711"), fake_server():
        pass
    with pytest.raises(KeyboardInterrupt), fake_server():
        raise KeyboardInterrupt
    with pytest.raises(stop.NotStopped), fake_server():
        raise LaunchFailed(Outcome.CRASHED, "which is told to the search, and the search must end")


# ---------------------------------------------------------------- the advisor itself is killed


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Sockets have short paths only, pytest's folders have long ones."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


def test_a_stopped_server_leaves_no_socket_and_no_rendezvous_file(
    fake_server: MakeServer, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    left = short_folder / f"vllm_dist_{'0a' * 16}"
    left.touch()
    with fake_server() as server:
        assert len(list(short_folder.glob("advisor-*/*"))) == 1
        with server.log_path.open("a") as log:
            log.write(f"rank=0 distributed_init_method=file://{left} backend=gloo\n")
            log.write("distributed_init_method=file:///elsewhere/vllm_dist_" + "0b" * 16 + " backend=gloo\n")
    assert list(short_folder.iterdir()) == []
    assert rendezvous_files("distributed_init_method=file:///elsewhere/vllm_dist_" + "0b" * 16 + " ") == []


@pytest.mark.parametrize("fault", ["", "ignore_sigterm", "orphan_child", "hang"])
def test_no_server_outlives_a_killed_advisor(tmp_path: Path, short_folder: Path, fault: str) -> None:
    program = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from advisor.launch.process import Grace
        from advisor.launch.readiness import LaunchLimits
        from advisor.launch.server import Server
        from advisor.records import Command, GpuFacts
        gpu = GpuFacts("cpu", "cpu", "cpu", 1, 16.0)
        command = Command((sys.executable, {str(FAKE)!r}, "serve", "m"), {{"FAKE_FAULT": {fault!r}}})
        def tell(event, at_s):
            if event == {"started" if fault == "hang" else "ready"!r}:
                time.sleep(0.3)
                print(server._process.guard_pid, *server.pids(), flush=True)
        server = Server(command, "n", Path({str(tmp_path)!r}), gpu, LaunchLimits(), tell, Grace({SHORT.leader_s}, {SHORT.group_s}))
        with server:
            time.sleep(60)
        """
    )
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(short_folder)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env, text=True) as advisor:
        pids = [int(word) for word in advisor.stdout.readline().split()]
        assert len(living(pids)) == len(pids) >= 2
        assert fault == "hang" or len(list(short_folder.glob("advisor-*/*"))) == 1  # a socket, as vLLM makes them
        advisor.kill()
    assert wait_gone(pids) == [] and list(short_folder.iterdir()) == []


def test_no_server_outlives_a_killed_guard(fake_server: MakeServer) -> None:
    with fake_server() as running:
        pids = running.pids()
        os.kill(running._process.guard_pid, signal.SIGKILL)
        assert wait_gone(pids) == []
        with pytest.raises(LaunchFailed, match="SIGKILL"):
            running.check_alive()


def test_the_guard_costs_little(tmp_path: Path) -> None:
    took = []
    for number in range(5):
        begun = time.monotonic()
        process = GuardedProcess(("/bin/true",), {}, tmp_path, tmp_path / str(number), Grace(leader_s=20.0))
        took.append(time.monotonic() - begun)
        assert process.stop() == []
        assert process.exit_code() in (0, -signal.SIGTERM)
    assert min(took) < 0.2
