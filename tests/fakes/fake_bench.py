"""A stand-in for advisor/target/bench.py: sends the load with threads, leaves a raw result of the same shape.

Give the class to `BenchClient(process=...)`. The prompts are words drawn from the seed alone, so that equal seeds give equal
prompts and no two of them are alike. `FakeBench.cpu_share` is what each process says of its own CPU time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import httpx

from advisor.target_process import TargetTimeout

ALONE = {"index": 0, "of": 1}


class FakeBench:
    cpu_share = 0.1
    loop_lag_s = 0.0
    made: ClassVar[list[FakeBench]] = []

    def __init__(self, python: str, script: str, env: dict, log: Path | None):
        self.answers: list[dict] = []
        self.thread: threading.Thread | None = None
        FakeBench.made.append(self)

    def __enter__(self) -> FakeBench:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def request(self, request: dict, timeout_s: float) -> dict:
        self.send(request)
        return self.receive(timeout_s)

    def send(self, request: dict) -> None:
        self.thread = threading.Thread(target=lambda: self.answers.append(self._run(request)))
        self.thread.start()

    def speaks(self, timeout_s: float) -> bool:
        self.thread.join(timeout_s)
        return not self.thread.is_alive()

    def receive(self, timeout_s: float) -> dict:
        self.thread.join(timeout_s)
        if not self.answers:
            raise TargetTimeout("the fake client did not answer in time")
        return self.answers.pop()

    def _run(self, request: dict) -> dict:
        share = request.get("share") or ALONE
        whole = prompts(request)
        mine = whole[share["index"] :: share["of"]]
        slots = len(range(share["index"], request["concurrency"], share["of"]))
        with httpx.Client(trust_env=False, verify=False, timeout=60) as http, ThreadPoolExecutor(slots) as pool:
            rows = list(pool.map(lambda prompt: _send(http, request, prompt), mine))
        began, ended = min(row["start"] for row in rows), max(row["start"] + row["latency"] for row in rows)
        raw = {
            "duration": ended - began,
            "start_times": [row["start"] for row in rows],
            "latencies": [row["latency"] for row in rows],
            "errors": [row["error"] for row in rows],
            "input_lens": [request["prefix_tokens"] + request["input_tokens"]] * len(rows),
            "output_lens": [row["tokens"] for row in rows],
            "ttfts": [row["ttft"] for row in rows],
            "itls": [row["gaps"] for row in rows],
            "advisor_client": {
                "prompts": hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16],
                "cpu_s": self.cpu_share * (ended - began), "wall_s": ended - began, "began": began, "ended": ended,
                "loop_lags_s": [self.loop_lag_s], "send_lags_s": [0.0],
            },
        }  # fmt: skip
        with contextlib.suppress(FileNotFoundError):  # nobody waits for it any more
            Path(request["result_path"]).write_text(json.dumps(raw))
        return {"ok": True, "result_path": request["result_path"], "vllm_version": "0.26.0"}


def prompts(request: dict) -> list[str]:
    drawn = random.Random(request["seed"])
    length = request["prefix_tokens"] + request["input_tokens"]
    return [" ".join(f"w{drawn.randrange(10**9)}" for _ in range(length)) for _ in range(request["num_prompts"])]


def _send(http: httpx.Client, request: dict, prompt: str) -> dict:
    body = {
        "model": request["served_name"], "prompt": prompt, "max_tokens": request["output_tokens"], "stream": True,
        "stream_options": {"include_usage": True}, "ignore_eos": True,
    }  # fmt: skip
    row = {"start": time.perf_counter(), "error": "", "tokens": 0, "ttft": 0.0, "gaps": [], "latency": 0.0}
    last = row["start"]
    try:
        with http.stream("POST", f"{request['base_url']}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if '"text"' not in line:
                    continue
                now = time.perf_counter()
                if row["tokens"]:
                    row["gaps"].append(now - last)
                else:
                    row["ttft"] = now - last
                row["tokens"], last = row["tokens"] + 1, now
        row["latency"] = last - row["start"]
    except httpx.HTTPError as error:
        row |= {
            "error": str(error),
            "tokens": 0,
            "ttft": 0.0,
            "gaps": [],
            "latency": time.perf_counter() - row["start"],
        }
    return row
