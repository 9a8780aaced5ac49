"""A `vllm` that can be imported once and forked, and is the fake engine then. Each import of it leaves a line in FAKE_IMPORTS."""

import os

__version__ = "0.26.0"

if path := os.environ.get("FAKE_IMPORTS"):
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
os.environ["FAKE_SET_BY_IMPORT"] = "1"
