"""One contract for every engine that the advisor launches: the fake one (always) and real vLLM on the processor (engine)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil
import pytest

from advisor.engine.logs import parse_active
from advisor.launch import ports
from advisor.launch.failure import LaunchFailed
from advisor.launch.server import Server
from advisor.records import Command, Outcome

from .conftest import CPU, FAKE
from .test_server import living, wait_gone


def memory(pid: int) -> int:
    """Of a process, in bytes; 0 of one that has ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0


class ServerContract:
    """Subclasses give a fixture `command`: argument list up to the model, and environment."""

    options: tuple[str, ...] = ()

    def server(self, command: Command, folder: Path, *options: str, env: Mapping[str, str] | None = None) -> Server:
        argv = (*command.argv, *self.options, *options)
        return Server(Command(argv, {**command.env, **(env or {})}), "advisor-0011aabb", folder, CPU)

    def test_ready_by_its_own_tokens_and_gone_after(self, command: Command, tmp_path: Path) -> None:
        events: dict[str, float] = {}
        launched = self.server(command, tmp_path)
        launched._on_event = events.__setitem__
        with launched as running:
            pids = running.pids()
            assert len(pids) >= 2
            assert ports.foreign(ports.listeners(running.port), running.pids()) == []
            request = {"model": running.served_name, "prompt": "one two three", "max_tokens": 3, "ignore_eos": True}
            answer = httpx.post(f"{running.base_url}/v1/completions", json=request, timeout=60).json()
            assert answer["usage"]["completion_tokens"] == 3
            running.check_alive()
            running.check_alive(ask=True)
            page = httpx.get(f"{running.base_url}/metrics", timeout=60).text
            assert "vllm:generation_tokens_total" in page and "vllm:e2e_request_latency_seconds_sum" in page
        assert next(iter(events)) == "started"
        assert list(events)[-2:] == ["ready", "stopping"]
        assert events["ready"] == pytest.approx(launched.start_s, abs=0.5)
        assert living(pids) == []
        assert not ports.is_open(launched.port)
        active = parse_active(launched.log_text())
        assert active.vllm_version
        assert len(active.attention_backends) == 1
        assert active.kv_cache_tokens > 0
        assert active.engine_init_s > 0
        assert active.enforce_eager is True

    def test_a_killed_engine_process_is_a_crash(self, command: Command, tmp_path: Path) -> None:
        with self.server(command, tmp_path, env={"FAKE_FAULT": "engine_dies"}) as running:
            biggest = max(running.pids()[1:], key=memory, default=None)
            if biggest is not None:
                with contextlib.suppress(ProcessLookupError):  # the fake's ends by itself
                    os.kill(biggest, signal.SIGKILL)
                assert wait_gone([biggest]) == []
            with pytest.raises(LaunchFailed) as caught:
                running.check_alive(ask=True)
        assert caught.value.outcome is Outcome.CRASHED
        assert caught.value.log_lines

    def test_a_refused_option_is_unsupported(self, command: Command, tmp_path: Path) -> None:
        launched = self.server(command, tmp_path, "--no-such-option", env={"FAKE_FAULT": "bad_option"})
        with pytest.raises(LaunchFailed) as caught, launched:
            pass
        assert caught.value.outcome is Outcome.UNSUPPORTED
        assert caught.value.reason == "unrecognized arguments: --no-such-option"


class TestFakeEngine(ServerContract):
    options = ("--enforce-eager",)

    @pytest.fixture
    def command(self) -> Command:
        return Command((sys.executable, str(FAKE), "serve", "some/model"))


class TestFakeVllmPackage(ServerContract):
    """The real command line, with a `vllm` package that is only the fake."""

    options = ("--enforce-eager",)

    @pytest.fixture
    def command(self) -> Command:
        argv = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "some/model")
        return Command(argv, {"PYTHONPATH": str(FAKE.parent / "site")})


@pytest.mark.engine
class TestVllmOnCpu(ServerContract):
    options = ("--load-format", "dummy", "--enforce-eager", "--max-model-len", "512")

    @pytest.fixture
    def command(self, engine_python: str, tiny_model: Path) -> Command:
        argv = (engine_python, "-m", "vllm.entrypoints.cli.main", "serve", str(tiny_model))
        return Command(argv, {"VLLM_CPU_KVCACHE_SPACE": "1"})
