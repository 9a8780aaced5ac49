"""Which launches may be forked: the rules, one by one."""

from __future__ import annotations

import pytest

from advisor.launch.warm_choice import (
    MODULE,
    command_refusal,
    environment_refusal,
    fork_broken,
    machine_refusal,
    may_be_the_fork,
)
from advisor.records import Outcome

BASE = {"PATH": "/bin", "VLLM_CACHE_ROOT": "/a", "OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (("linux", "6.8.0-generic", "cuda"), None),
        (("linux", "6.8.0-generic", "cpu"), None),
        (("darwin", "23.0", "cpu"), "Linux only"),
        (("linux", "5.15.153.1-microsoft-standard-WSL2", "cuda"), "WSL"),
        (("linux", "6.8.0", "rocm"), "not on rocm"),
    ],
)
def test_machines(machine, said) -> None:
    found = machine_refusal(*machine)
    assert (found is None) if said is None else said in found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", None),
        ("--tensor-parallel-size 1 --enforce-eager --port 80", None),
        ("-tp 1 --distributed-executor-backend mp", None),
        ("--tensor-parallel-size 2", "--tensor-parallel-size 2"),
        ("-tp=4", "--tensor-parallel-size 4"),
        ("--pipeline-parallel-size 2", "--pipeline-parallel-size 2"),
        ("-dp 2", "--data-parallel-size 2"),
        ("-dcp 2", "--decode-context-parallel-size 2"),
        ("--api-server-count 3", "--api-server-count 3"),
        ("--distributed-executor-backend ray", "ray"),
        ("--distributed_executor_backend external_launcher", "external_launcher"),
        ("--headless", "--headless"),
        ("--numa-bind", "--numa-bind"),
        ("--data-parallel-rank 0", "--data-parallel-rank"),
    ],
)
def test_layouts(options, said) -> None:
    found = command_refusal(("py", *MODULE, "model", *options.split()), "py")
    assert (found is None) if said is None else said in found


@pytest.mark.parametrize(
    "argv",
    [("other", *MODULE, "m"), ("py", "fake.py", "serve", "m"), ("py", "-m", "vllm.entrypoints.cli.main", "bench", "m")],
)
def test_only_the_installed_vllms_serve_is_forked(argv) -> None:
    assert "serve" in command_refusal(argv, "py")


def test_a_mistake_in_the_arguments_is_the_servers_to_tell() -> None:
    assert command_refusal(("py", *MODULE, "m", "-cc", "{not json"), "py") is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"VLLM_RPC_BASE_PATH": "/tmp/x"}, None),
        ({"VLLM_CACHE_ROOT": "/b"}, None),
        ({"VLLM_WORKER_MULTIPROC_METHOD": "fork"}, None),
        ({"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}, "another way to start processes"),
        ({"VLLM_LOGGING_LEVEL": "DEBUG"}, "VLLM_LOGGING_LEVEL is read when vLLM is imported"),
        ({"OMP_NUM_THREADS": "8"}, "OMP_NUM_THREADS may be read when a library is loaded"),
        ({"OMP_NUM_THREADS": None}, "OMP_NUM_THREADS may be read"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES may be read"),
        ({"TORCH_LOGS": "+dynamo"}, "TORCH_LOGS may be read"),
        ({"LD_PRELOAD": "libtcmalloc.so"}, "LD_PRELOAD may be read"),
    ],
)
def test_environments(change, said) -> None:
    server = {name: value for name, value in {**BASE, **change}.items() if value is not None}
    found = environment_refusal(BASE, server, {"VLLM_LOGGING_LEVEL", "PATH"})
    assert (found is None) if said is None else said in found


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn'",
        "advisor: CUDA was in use before the fork",
        "torch.AcceleratorError: CUDA error: initialization error",
    ],
)
def test_a_log_that_blames_the_fork(line) -> None:
    assert fork_broken(f"INFO\n(EngineCore pid=7) ERROR {line}\n")
    assert may_be_the_fork(Outcome.UNSUPPORTED, line)


def test_what_a_cold_start_would_say_too_is_not_tried_again() -> None:
    log = "ValueError: FLASHMLA is not valid for this configuration"
    assert not fork_broken(log)
    assert not may_be_the_fork(Outcome.UNSUPPORTED, log)
    assert not may_be_the_fork(Outcome.OUT_OF_MEMORY, "CUDA out of memory")
    assert not may_be_the_fork(Outcome.INTERRUPTED, log)  # the budget has ended, and no other start fits
    assert may_be_the_fork(Outcome.TIMED_OUT, log)
    assert may_be_the_fork(Outcome.FAILED_TO_START, log)
    assert may_be_the_fork(Outcome.CRASHED, log)
