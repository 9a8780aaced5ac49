"""Outcome and reason told from recorded and rebuilt logs of failed starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.launch.failure import classify, dirty_gpu, port_taken, signature
from advisor.launch.tracebacks import error_lines
from advisor.records import Outcome

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"


def read(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "exit_code", "outcome", "reason"),
    [
        ("cpu-0.32-unknown-option", 2, Outcome.UNSUPPORTED, "unrecognized arguments: --no-such-option 3"),
        ("cpu-0.32-refused-value", 1, Outcome.UNSUPPORTED, "max_num_batched_tokens (64) must be greater than or equal"),
        ("cpu-0.32-block-size-17", 1, Outcome.UNSUPPORTED, "ValueError: No common block size for 17"),
        ("cpu-0.32-kv-too-big", 1, Outcome.OUT_OF_MEMORY, "no memory for the KV cache: ValueError: Available memory"),
        ("cuda-0.26-backend-refused", 1, Outcome.UNSUPPORTED, "FLASHMLA is not valid for this configuration"),
        ("cuda-0.26-oom-load", 1, Outcome.OUT_OF_MEMORY, "out of memory while loading the model: OutOfMemoryError"),
        ("cuda-0.26-oom-capture", 1, Outcome.OUT_OF_MEMORY, "out of memory while capturing CUDA graphs"),
        ("cuda-0.26-oom-warm-up", 1, Outcome.OUT_OF_MEMORY, "out of memory while warming up: OutOfMemoryError"),
        ("cuda-0.26-kv-too-small", 1, Outcome.OUT_OF_MEMORY, "no memory for the KV cache: ValueError: To serve"),
        ("cuda-0.26-illegal-access-at-capture", 1, Outcome.CRASHED, "while capturing CUDA graphs: AcceleratorError"),
        ("cuda-0.26-engine-killed", 1, Outcome.CRASHED, "ended by SIGKILL, perhaps by the kernel"),
        ("cuda-0.26-gpu-in-use", 1, Outcome.FAILED_TO_START, "Free memory on device cuda:0"),
        ("cuda-0.26-port-taken", 1, Outcome.FAILED_TO_START, "Address already in use"),
    ],
)
def test_failed_starts(name: str, exit_code: int, outcome: Outcome, reason: str) -> None:
    found, told = classify(exit_code, read(name))
    assert found is outcome
    assert reason in told
    assert "\n" not in told
    assert "root cause above" not in told


def test_death_while_serving_is_a_crash_with_the_engine_s_own_words() -> None:
    outcome, reason = classify(1, read("cuda-0.26-died-while-serving"), was_ready=True)
    assert outcome is Outcome.CRASHED
    assert reason == "while serving: AcceleratorError: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (-11, "SIGSEGV"), (-6, "SIGABRT")])
def test_a_signal_is_named(code: int, name: str) -> None:
    outcome, reason = classify(code, "INFO 11-29 10:00:00 [core.py:1] loading\n")
    assert outcome is Outcome.CRASHED
    assert reason.startswith(f"ended by {name}")


def test_a_traceback_says_more_than_the_signal_of_the_process_that_had_it() -> None:
    outcome, reason = classify(-6, read("cuda-0.26-oom-load"))
    assert outcome is Outcome.OUT_OF_MEMORY
    assert "while loading the model" in reason


def test_lines_of_other_processes_do_not_tear_a_traceback_apart() -> None:
    lines = [
        "(Worker_TP0 pid=7) ERROR 11-29 10:00:00 [a.py:1] WorkerProc failed to start.",
        "(Worker_TP0 pid=7) ERROR 11-29 10:00:00 [a.py:1] Traceback (most recent call last):",
        "(Worker_TP1 pid=8) ERROR 11-29 10:00:00 [a.py:1] something else",
        '(Worker_TP0 pid=7) ERROR 11-29 10:00:00 [a.py:1]   File "x.py", line 1, in load_model',
        "(APIServer pid=5) INFO 11-29 10:00:00 [a.py:1] still here",
        "(Worker_TP0 pid=7) ERROR 11-29 10:00:00 [a.py:1] ValueError: fp8 is not supported on this GPU",
    ]
    assert classify(1, "\n".join(lines)) == (Outcome.UNSUPPORTED, "ValueError: fp8 is not supported on this GPU")


def test_a_warning_with_a_traceback_is_not_to_blame() -> None:
    harmless = "\n".join(
        f"(EngineCore pid=7) WARNING 11-29 10:00:00 [a.py:1] {text}"
        for text in (
            "cache not loaded",
            "Traceback (most recent call last):",
            '  File "x", line 1, in f',
            "OSError: no",
        )
    )
    outcome, reason = classify(1, f"{harmless}\n{read('cuda-0.26-backend-refused')}")
    assert outcome is Outcome.UNSUPPORTED
    assert "FLASHMLA" in reason


def test_an_error_met_while_handling_another_is_the_one_that_counts() -> None:
    log = """Traceback (most recent call last):
  File "x.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "x.py", line 2, in f
RuntimeError: no file x in the model's folder
"""
    assert classify(1, log)[1] == "RuntimeError: no file x in the model's folder"


def test_an_exit_without_a_word() -> None:
    assert classify(3, "") == (Outcome.FAILED_TO_START, "the server ended without a word (exit code 3)")


def test_surroundings_and_settings_are_told_apart() -> None:
    assert dirty_gpu(classify(1, read("cuda-0.26-gpu-in-use"))[1])
    assert port_taken(classify(1, read("cuda-0.26-port-taken"))[1])
    own = classify(1, read("cuda-0.26-oom-capture"))[1]
    assert not dirty_gpu(own) and not port_taken(own)


def test_equal_causes_have_equal_signatures() -> None:
    first = "OOM: tried 2.25 GiB at 0x7f00 in /home/a/model of 139.80 GiB, pid 4711, id 886aed2cba1b1f6c"
    second = "OOM: tried 64 GiB at 0x8fde in /srv/other.d/m of 80 GiB, pid 12, id 0741ca3643dfc894"
    assert signature(first) == signature(second)
    assert signature(first) != signature(first.replace("OOM", "timeout"))
    assert signature("cuda:0 at 1,024 tokens") == "cuda:<n> at <n> tokens"


def test_error_lines_are_short_and_without_stacks() -> None:
    lines = error_lines(read("cpu-0.32-block-size-17"))
    assert lines[0] == "WorkerProc hit an exception."
    assert "ValueError: No common block size for 17 (CPU_ATTN: [MultipleOf(32)])." in lines
    assert len(lines) <= 12
    assert not any("File" in line or line.startswith("Traceback") for line in lines)
    assert len(set(lines)) == len(lines)


def test_without_errors_the_end_of_the_log_is_shown() -> None:
    assert error_lines("one\ntwo\nthree\n", 2) == ["two", "three"]
