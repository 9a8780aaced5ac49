"""Against a real server: where the buckets of its page hold one size each, the page says what the engine's own table says."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from advisor.launch import ports
from advisor.measure.step_counters import running_requests, watch
from advisor.search.batch_histogram import from_pages, read_histogram
from advisor.search.buckets import Question, answer
from advisor.target_process import scrubbed_environment
from tests.measure.test_real_engine import _end, _wait_until_healthy

pytestmark = pytest.mark.engine

TOKENS = 200
OWN_BUCKETS = json.dumps({"iteration_tokens": list(range(1, 33))})


@pytest.fixture(scope="module")
def server(engine_python: str, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """(address, log) of a bare eager server that counts its steps in both ways.

    Its steps take longer than the API server takes for their answers: of the tiny model's steps new ones are always there,
    and /metrics, which the same loop answers, waits until the whole generation is over and nothing runs (seen on 0.32.0).
    """
    port = ports.free_port()
    words = ["serve", str(demo_model), "--load-format", "dummy", "--enforce-eager", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--served-model-name", "m"]
    words += ["--cudagraph-metrics", "--custom-histogram-buckets", OWN_BUCKETS]
    log = tmp_path_factory.mktemp("server") / "server.log"
    env = scrubbed_environment(os.environ, {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOG_STATS_INTERVAL": "1"})
    with log.open("w") as out:
        command = [engine_python, "-m", "vllm.entrypoints.cli.main", *words]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}", log
    finally:
        _end(process)


def generate(url: str, answers: int, tokens: int = TOKENS) -> None:
    """One prompt of 20 tokens with several answers: they are decoded in step."""
    body = {
        "model": "m",
        "prompt": [5] * 20,
        "max_tokens": tokens,
        "ignore_eos": True,
        "n": answers,
        "temperature": 1.0,
    }
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=120, trust_env=False)
    assert reply.json()["usage"]["completion_tokens"] == answers * tokens


def counted(log: Path, steps: Mapping[int, float]) -> dict[int, float]:
    """The engine's own table of these batches, once it holds so many steps of each; it is written every second."""
    deadline = time.monotonic() + 60
    rows: dict[int, float] = {}
    while any(rows.get(batch, 0) < steps[batch] for batch in steps) and time.monotonic() < deadline:
        time.sleep(1)
        text = log.read_text()
        rows = dict(read_histogram(text, "log").steps) if "Unpadded Tokens" in text else {}
    return {batch: rows.get(batch, 0) for batch in steps}


def test_page_and_table_count_the_same_steps(server: tuple[str, Path]):
    url, log = server
    before = watch(url, None).page
    generate(url, 1)
    alone = from_pages(before, watch(url, None).page, ())
    assert alone.steps[1] == TOKENS - 1  # the first token comes with the prompt
    generate(url, 4)
    page = from_pages(before, watch(url, None).page, ())
    assert page.approximations == ()
    # The four arrive one after another: on a busy machine early and late steps are of one, two or three of them. All but the
    # first token of each answer are in these steps, or in one that reads the prompt of another one of the four.
    decoded = {batch: count for batch, count in page.steps.items() if batch <= 4}
    whole = 5 * (TOKENS - 1)
    assert page.steps[4] > 0 and whole - (1 + 2 + 3) <= sum(batch * count for batch, count in decoded.items()) <= whole
    assert counted(log, decoded) == decoded


def test_a_server_that_is_watched_under_load(server: tuple[str, Path]):
    url, _ = server
    stop = threading.Event()

    def keep_loading() -> None:
        while not stop.is_set():
            generate(url, 4, tokens=1000)  # long ones: between two answers nothing runs

    worker = threading.Thread(target=keep_loading)
    worker.start()
    try:
        deadline = time.monotonic() + 60
        while running_requests(watch(url, None).page) != 4 and time.monotonic() < deadline:
            time.sleep(0.1)  # the gauge says four as soon as they run
        assert time.monotonic() < deadline
        told = answer(Question(metrics=url, watch_s=2.0, max_num_seqs=8, vllm_version="0.32.0"))
    finally:
        stop.set()
        worker.join()
    assert told["histogram"]["steps"] > 20 and 4 in told["recommended"]["sizes"]
