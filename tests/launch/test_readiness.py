"""When a start counts as stuck, what the log tells of it, and what counts as a token."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from advisor.launch.readiness import (
    LaunchLimits,
    LogTail,
    Progress,
    Signs,
    complete,
    phase,
    read_completion,
    telling_size,
)

LIMITS = LaunchLimits(stall_s=600, quiet_cpu_s=2700, hard_s=3600)


def watch(minutes: int, log=lambda m: 0, cpu_s=lambda m: 0.0, gpu_mib=lambda m: 0) -> tuple[int, str] | None:
    """Observe once a minute; the minute in which the watch gives up, and why."""
    progress = Progress(LIMITS, Signs(0.0, log(0), cpu_s(0), gpu_mib(0)))
    for minute in range(1, minutes + 1):
        if reason := progress.observe(Signs(60.0 * minute, log(minute), cpu_s(minute), gpu_mib(minute))):
            return minute, reason
    return None


def test_nothing_moves() -> None:
    minute, reason = watch(60)
    assert minute == 11
    assert "no sign of life for 600 s" in reason


def test_a_background_thread_is_no_sign_of_life() -> None:
    minute, _ = watch(60, cpu_s=lambda m: m * 60 * 0.01)
    assert minute == 11


def test_a_silent_compile_of_2222_seconds_is_waited_for() -> None:
    assert watch(37, cpu_s=lambda m: m * 60.0) is None


def test_a_spin_ends_all_the_same() -> None:
    minute, reason = watch(60, cpu_s=lambda m: m * 60.0)
    assert minute == 46
    assert "uses CPU time" in reason


def test_weights_that_arrive_on_the_gpu_are_progress() -> None:
    assert watch(55, gpu_mib=lambda m: m * 1000) is None


def test_a_log_that_grows_is_progress_up_to_the_hard_limit() -> None:
    minute, reason = watch(70, log=lambda m: m)
    assert minute == 61
    assert reason == "not ready after 3600 s"


def test_cpu_time_that_falls_with_an_ended_child_is_no_sign() -> None:
    minute, _ = watch(60, cpu_s=lambda m: 1000.0 - m)
    assert minute == 11


def test_phases_follow_the_log() -> None:
    logs = Path(__file__).resolve().parent.parent / "data" / "logs"
    text = (logs / "cuda-0.26-default.log").read_text()
    assert phase(text) == "asking for the first token"
    assert phase(text.partition("Model loading took")[0]) == "loading the model"
    assert phase(text.partition("Graph capturing finished")[0]) == "capturing graphs"
    assert phase("nothing of the kind") is None


def test_the_repeated_line_of_a_waiting_server_does_not_count() -> None:
    assert telling_size("No available shared memory broadcast block found in 60 seconds.\n") == 0
    assert telling_size("loaded\nNo available shared memory broadcast block found\n") == len("loaded")


def test_tail_reads_on_where_it_stopped_and_takes_progress_bars(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert tail.read() == ""
    path.write_bytes(b"first\nhalf")
    assert tail.read() == "first\n"
    with path.open("ab") as file:
        file.write(b" line\n 10%\r 20%\r 3")
    assert tail.read() == "half line\n 10%\r 20%\r"
    assert tail.telling == len("first") + len("half line") + len(" 10%") + len(" 20%")


@pytest.mark.parametrize(
    ("status", "body", "tokens", "problem"),
    [
        (200, {"model": "m", "usage": {"completion_tokens": 4}}, 4, ""),
        (200, {"model": "m", "usage": {"completion_tokens": 0}}, 0, "no token"),
        (200, {"hello": "world"}, 0, "not a completion"),
        (200, [1], 0, "not a completion"),
        (404, {"error": "no such model"}, 0, "HTTP 404"),
    ],
)
def test_what_counts_as_tokens(status: int, body: object, tokens: int, problem: str) -> None:
    response = httpx.Response(status, json=body)
    probe = read_completion(status, response.text, response)
    assert probe.answered
    assert probe.tokens == tokens
    assert problem in probe.problem


def test_nobody_there_is_not_an_answer(unused_port: int) -> None:
    probe = complete(f"http://127.0.0.1:{unused_port}", "m", 1.0)
    assert not probe.answered
    assert "no answer" in probe.problem
