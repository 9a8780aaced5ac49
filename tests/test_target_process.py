"""The protocol to a script in another interpreter: answers, deaths, silence, leftovers, and the environment it gets."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from advisor.errors import EnvironmentMismatch
from advisor.target_process import (
    SCRIPTS,
    TargetDied,
    TargetProcess,
    TargetTimeout,
    dropped_variables,
    script_path,
    scrubbed_environment,
)

SCRIPT = """
import json, os, subprocess, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if "child" in request:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(json.dumps({"child": child.pid}), flush=True)
    if "sleep" in request:
        time.sleep(request["sleep"])
    if "die" in request:
        print("first\\n\\nlast words", file=sys.stderr, flush=True)
        os._exit(request["die"])
    if "garbage" in request:
        print("not json", flush=True)
    if "echo" in request:
        print(json.dumps({"echo": request["echo"], "env": dict(os.environ)}), flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def started(script: Path, **options) -> TargetProcess:
    return TargetProcess(sys.executable, script, dict(os.environ), **options)


def alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and only waits to be reaped by init does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_several_requests_to_one_process(script: Path):
    with started(script) as process:
        pid = process.pid
        assert process.request({"echo": "ü\n"}, 60)["echo"] == "ü\n"
        assert process.request({"echo": [1, {"a": None}]}, 60)["echo"] == [1, {"a": None}]
        assert process.pid == pid
    assert not alive(pid)


def test_answers_longer_than_a_pipe_arrive_whole(script: Path):
    with started(script) as process:
        assert len(process.request({"echo": "x" * 3_000_00}, 60)["echo"]) == 300_000


@pytest.fixture
def long_idle_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an idle script has to leave, long enough to be told from what a busy machine takes to end one without it."""
    monkeypatch.setattr("advisor.target_process._IDLE_GRACE_S", 60.0)


def test_a_script_that_still_imports_is_not_waited_for(tmp_path: Path, long_idle_grace: None):
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(600)")
    begun = time.monotonic()
    with started(slow) as process:
        pid = process.pid
    assert time.monotonic() - begun < 30 and not alive(pid)


def test_a_death_is_told_with_its_last_words(script: Path):
    with started(script) as process, pytest.raises(TargetDied, match=r"exit code 3.*last words") as raised:
        process.request({"die": 3}, 60)
    assert raised.value.last_lines == ("first", "last words")
    assert isinstance(raised.value, EnvironmentMismatch)


def test_a_dead_process_stays_an_error(script: Path):
    with started(script) as process:
        with pytest.raises(TargetDied):
            process.request({"die": 3}, 60)
        with pytest.raises(TargetDied, match="not running"):
            process.request({"echo": 1}, 60)


def test_silence_ends_the_process_in_time(script: Path, long_idle_grace: None):
    with started(script) as process:
        pid, began = process.pid, time.monotonic()
        with pytest.raises(TargetTimeout, match=r"within 0\.3 s"):
            process.request({"sleep": 600}, 0.3)
        assert time.monotonic() - began < 30
        assert not alive(pid)


def test_what_the_script_started_is_ended_with_it(script: Path):
    with started(script) as process:
        child = process.request({"child": True}, 60)["child"]
        assert alive(child)
    deadline = time.monotonic() + 30
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_an_interrupted_request_does_not_wait_for_the_script(script: Path, long_idle_grace: None):
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), started(script) as process:
        process._busy = True  # as it is while a request waits
        raise KeyboardInterrupt
    assert time.monotonic() - began < 30


def test_garbage_on_the_channel_is_told(script: Path):
    with started(script) as process, pytest.raises(TargetDied, match="not json"):
        process.request({"garbage": True}, 60)


def test_an_interpreter_that_cannot_start(script: Path, tmp_path: Path):
    text, program = tmp_path / "text", tmp_path / "program"
    text.write_text("hello")
    program.write_bytes(b"\0\1\2")
    program.chmod(0o755)
    reasons = {"/nope/python": "does not exist", str(text): "cannot be executed", str(program): "is no program"}
    for python, reason in reasons.items():
        with pytest.raises(EnvironmentMismatch, match=reason) as raised, TargetProcess(python, script, {}):
            pass
        assert "--engine-python" in raised.value.hint


def test_the_log_is_kept_where_it_was_asked_for(script: Path, tmp_path: Path):
    log = tmp_path / "log.txt"
    with started(script, log=log) as process, pytest.raises(TargetDied):
        process.request({"die": 1}, 60)
    assert "last words" in log.read_text()


# ---------------------------------------------------------------- environment

INHERITED = {
    "PATH": "/bin",
    "VLLM_PORT": "tcp://10.0.0.1:80",
    "VLLM_ATTENTION_BACKEND": "FLASHINFER",
    "VLLM_CACHE_ROOT": "/cache",
    "VLLM_CONFIG_ROOT": "/config",
    "VLLM_ASSETS_CACHE": "/assets",
    "VLLM_NO_USAGE_STATS": "0",
    "TORCH_COMPILE_DISABLE": "1",
    "CUDA_VISIBLE_DEVICES": "1",
}


def test_only_what_is_meant_reaches_vllm():
    assert scrubbed_environment(INHERITED, {"VLLM_CPU_KVCACHE_SPACE": "1"}) == {
        "PATH": "/bin",
        "VLLM_CACHE_ROOT": "/cache",
        "VLLM_CONFIG_ROOT": "/config",
        "VLLM_ASSETS_CACHE": "/assets",
        "VLLM_NO_USAGE_STATS": "1",
        "CUDA_VISIBLE_DEVICES": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }


def test_a_dropped_variable_can_be_meant():
    assert scrubbed_environment(INHERITED, {"VLLM_PORT": "1"})["VLLM_PORT"] == "1"


def test_dropped_variables_are_named():
    assert dropped_variables(INHERITED) == ("TORCH_COMPILE_DISABLE", "VLLM_ATTENTION_BACKEND", "VLLM_PORT")


def test_scripts_are_found_by_their_names():
    assert script_path("describe") == SCRIPTS / "describe.py"
    assert script_path(Path("describe")) == Path("describe")


def test_no_script_hides_a_module_of_the_standard_library():
    """Python puts the script's folder first on the path while a script's own first imports run."""
    assert not {path.stem for path in SCRIPTS.glob("*.py")} & set(sys.stdlib_module_names)
