"""Raw results as vLLM's benchmark client leaves them: made ones for rules, recorded ones for the real shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from advisor.records import Workload

RECORDED = Path(__file__).parent.parent / "data" / "bench"
WORKLOAD = Workload(name="made", input_tokens=100, output_tokens=11, num_prompts=8, concurrency=2)


def recorded(name: str) -> dict[str, Any]:
    """A recorded raw result; tests/data/bench/README.md says where it comes from."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def made(requests: int = 8, ttft_s: float = 0.2, gap_s: float = 0.08, output_tokens: int = 11) -> dict[str, Any]:
    """Requests that all look alike, two in flight without a pause: each takes one second, four waves make four."""
    latency = ttft_s + gap_s * (output_tokens - 1)
    duration = latency * requests / 2
    return {
        "duration": duration,
        "input_lens": [100] * requests,
        "output_lens": [output_tokens] * requests,
        "ttfts": [ttft_s] * requests,
        "itls": [[gap_s] * (output_tokens - 1) for _ in range(requests)],
        "errors": [""] * requests,
        "completed": requests,
        "failed": 0,
        "output_throughput": output_tokens * requests / duration,
        "request_throughput": requests / duration,
    }


def fail(raw: dict[str, Any], index: int, error: str = "Traceback\n  ...\nConnectionError: reset by peer\n") -> None:
    """Let one request have failed, as the client writes it down."""
    raw["errors"][index] = error
    raw["output_lens"][index] = 0
    raw["ttfts"][index] = 0.0
    raw["itls"][index] = []
