"""A target script does not outlive the advisor, not even in the middle of an import that takes long."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

SLOW = """
import pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
time.sleep(120)
"""
# What an advisor does with it: start, ask, wait. It is killed meanwhile.
STARTER = """
import os, sys
from advisor.target_process import TargetProcess
with TargetProcess(sys.executable, sys.argv[1], dict(os.environ)) as process:
    print(process.pid, flush=True)
    process.request({"model": "m", "argv": ["m"], "ping": True}, 100)
"""

# The launcher that servers are forked from says who it is only when it has imported everything.
WARM = """
import os, subprocess, sys, pathlib
from advisor.launch import launcher
real = subprocess.Popen
def told(*words, **more):
    process = real(*words, **more)
    print(process.pid, flush=True)
    return process
launcher.subprocess.Popen = told
launcher.Launcher(sys.executable, None, dict(os.environ), pathlib.Path(sys.argv[1])).wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux ends it; elsewhere it sees the end of its input")
@pytest.mark.parametrize(
    ("code", "word"), [(STARTER, "bench"), (STARTER, "resolve"), (STARTER, "describe"), (WARM, "warm.log")],
    ids=["bench", "resolve", "describe", "warm_serve"],
)  # fmt: skip
def test_a_script_that_imports_ends_with_the_advisor(tmp_path, code, word):
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text(SLOW)
    root = Path(__file__).resolve().parents[2]
    starter = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / word) if code == WARM else word],
        stdout=subprocess.PIPE, text=True, cwd=root,
        env={"PYTHONPATH": f"{tmp_path}:{root}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    try:
        process = psutil.Process(int(starter.stdout.readline()))
        assert wait_for(lambda: (package / "begun").exists())
        starter.kill()
        assert wait_for(lambda: not living(process))
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()


# vLLM looks at a model's class in a process of its own, which imports everything once more.
INSPECTS = """
import pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
subprocess.run([sys.executable, "-c", f"import os, pathlib, time; pathlib.Path({str(here / 'inspector')!r})"
    ".write_text(str(os.getpid())); time.sleep(120)"])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="as above")
@pytest.mark.parametrize("word", ["bench", "resolve", "describe"])
def test_nor_does_what_it_started_outlive_the_advisor(tmp_path, word):
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text(INSPECTS)
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, word], stdout=subprocess.DEVNULL, cwd=root,
        env={"PYTHONPATH": f"{tmp_path}:{root}", "PATH": "/usr/bin:/bin"},
    ) as starter:  # fmt: skip
        told = package / "inspector"
        assert wait_for(lambda: told.exists() and told.read_text())
        inspector = psutil.Process(int(told.read_text()))
        starter.kill()
    assert wait_for(lambda: not living(inspector))


def living(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(what, limit_s=60.0):  # half of what would go on for two minutes
    end = time.monotonic() + limit_s
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()
