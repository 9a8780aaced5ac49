"""Processes that outlive SIGKILL are named with their state, so that a person knows what to do about the GPU."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pytest

from advisor.launch import stop
from advisor.nvml import Holder

GONE = 2**22 + 1


def test_a_process_is_named_as_it_was_known_with_its_state() -> None:
    state = psutil.Process().status()
    assert stop._unkillable(os.getpid(), "VLLM::EngineCor") == f"pid {os.getpid()} (VLLM::EngineCor, {state})"
    assert stop._unkillable(os.getpid(), "") == f"pid {os.getpid()} ({psutil.Process().name()}, {state})"
    assert stop._unkillable(GONE, "") == f"pid {GONE} (not visible from here)"


def test_a_server_stuck_in_the_driver_ends_the_study_before_memory_is_waited_for() -> None:
    """State D: SIGKILL waits for the driver's call to return, which it may never do (and R loops inside it)."""
    stuck = SimpleNamespace(processes=lambda: [SimpleNamespace(pid=os.getpid())], stop=lambda: [os.getpid()])
    memory = SimpleNamespace(wait_released=lambda ours: pytest.fail("its memory cannot come back"), holders=list)
    with pytest.raises(stop.NotStopped) as caught:
        stop.stop(stuck, 1, memory)
    assert f"outlived SIGKILL: pid {os.getpid()} ({psutil.Process().name()}" in caught.value.problem
    assert "restart of the machine" in caught.value.hint and caught.value.exit_code == 3


def test_what_the_server_was_counts_as_ours_when_memory_is_waited_for(unused_port) -> None:
    asked: list[set[int]] = []
    ended = SimpleNamespace(processes=lambda: [SimpleNamespace(pid=11)], stop=list, stubborn=[11])
    memory = SimpleNamespace(wait_released=asked.append, holders=lambda: [Holder(11, "x", 2048)])
    stopped = stop.stop(ended, unused_port, memory, known={12})
    assert asked == [{11, 12}]
    assert stopped.leftovers == (f"pid 11 ({', '.join(filter(None, (stop._name(11), '2.0 GiB')))})",)
