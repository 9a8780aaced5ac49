"""Fails to be imported where it is told to."""

import os

if os.environ.get("FAKE_IMPORT") == "broken":
    raise ImportError("libcudart.so.13: cannot open shared object file")
