"""`python -m vllm.entrypoints.cli.main serve ...` with the fake engine."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
    import fake_engine  # as a module, whose compiled form is kept: each test starts dozens of these

    fake_engine.main(sys.argv[1:])
