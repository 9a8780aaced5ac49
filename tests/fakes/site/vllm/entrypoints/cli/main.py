"""`python -m vllm.entrypoints.cli.main serve ...` with the fake engine."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).resolve().parents[4] / "fake_engine.py"), run_name="__main__")
