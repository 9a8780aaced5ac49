"""`python -m vllm.entrypoints.cli.main serve ...` with the fake engine; some faults only show in a fork."""

import os
import runpy
import sys
from pathlib import Path

FAULT = os.environ.get("FAKE_FORK_FAULT", "")


def forked():
    return "vllm.v1.engine.async_llm" in sys.modules  # imported by nobody else here


if __name__ == "__main__":
    if forked() and FAULT == "cuda":
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, use 'spawn'")
    if forked() and FAULT == "other":
        raise RuntimeError("it does not like to be forked")
    runpy.run_path(str(Path(__file__).resolve().parents[4] / "fake_engine.py"), run_name="__main__")
