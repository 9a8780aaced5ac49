"""Reads a variable while it is imported."""

import os

SEEN = os.environ.get("VLLM_READ_AT_IMPORT")
