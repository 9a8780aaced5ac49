"""Servers of the fake engine, and ports, for the launch tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.launch import ports
from advisor.launch.process import Grace
from advisor.launch.readiness import LaunchLimits
from advisor.launch.server import Server
from advisor.records import Command, GpuFacts

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "fake_engine.py"
CPU = GpuFacts("cpu", "cpu", "cpu", 1, 16.0)
SHORT = Grace(leader_s=0.3, group_s=0.2)
PATIENT = LaunchLimits(stall_s=30.0, quiet_cpu_s=30.0, hard_s=60.0, first_token_s=30.0)  # also on a busy machine
# Each with one limit that is soon reached: an interpreter that takes long to start must not reach the other one first.
IMPATIENT = LaunchLimits(stall_s=0.8, quiet_cpu_s=60.0, hard_s=60.0, first_token_s=10.0)
IMPATIENT_WITH_CPU = LaunchLimits(stall_s=60.0, quiet_cpu_s=1.6, hard_s=60.0, first_token_s=10.0)


@pytest.fixture
def unused_port() -> int:
    return ports.free_port()


@pytest.fixture
def fake_server(tmp_path: Path) -> Callable[..., Server]:
    """A server of the fake engine: fake_server("hang", args=[..], name="..", **options of Server)."""

    def make(fault: str = "", args: tuple[str, ...] = (), name: str = "advisor-test", **options) -> Server:
        argv = (sys.executable, str(FAKE), "serve", "some/model", *args)
        command = Command(argv, {"FAKE_FAULT": fault, "FAKE_TIME_SCALE": "0.1"})
        folder = tmp_path / name
        gpu, limits = options.pop("gpu", CPU), options.pop("limits", PATIENT)
        return Server(command, name, folder, gpu, limits, **{"grace": SHORT, **options})

    return make
