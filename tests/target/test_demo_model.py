"""The script that makes the small model, run with a Python that cannot make it."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "advisor" / "target" / "demo_model.py"


def test_a_python_without_vllm_says_so_and_leaves_no_folder(tmp_path):
    bare = [sys.executable, "-S", str(SCRIPT), str(tmp_path / "model")]  # -S: no installed packages
    done = subprocess.run(bare, capture_output=True, text=True)
    assert done.returncode == 2 and "has no tokenizers: run this with the Python that holds vLLM" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "model").exists()
