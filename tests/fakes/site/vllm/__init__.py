"""A `vllm` that is only the fake engine: with this folder's parent in PYTHONPATH, a real `serve` command runs it."""

__version__ = "0.26.0"
