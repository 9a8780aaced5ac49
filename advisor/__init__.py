"""Configuration advisor for LLM serving: measured `vllm serve` settings for a model, a GPU and a workload."""

__version__ = "0.1.0"
