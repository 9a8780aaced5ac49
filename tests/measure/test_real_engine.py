"""The client against a real server: prompts are new for each seed, and the server counts what the client counts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from advisor.launch import ports
from advisor.measure.client import BenchClient
from advisor.measure.load_search import MOST_LOADS, find_load
from advisor.measure.saturation import keeps_up, with_requests
from advisor.measure.workload import load_workload
from advisor.records import Objective, Sample, SloLimit, Workload
from advisor.target_process import scrubbed_environment

SERVED = "measured"
START_LIMIT_S = 180
# Longer than a cache block of the CPU build (128 tokens), so that a repeated prompt would be found.
WORKLOAD = dataclasses.replace(load_workload("tiny"), input_tokens=300, output_tokens=8, num_prompts=32)

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def client(engine_python: str, tiny_model: Path) -> Iterator[BenchClient]:
    """Asked for before the server, so that its import runs while the server starts."""
    with BenchClient(engine_python, str(tiny_model), timeout_s=120) as started:
        yield started


@pytest.fixture(scope="module")
def server_url(
    client: BenchClient, engine_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A bare eager server of the tiny model, with prefix caching as vLLM has it by default: on."""
    port = ports.free_port()
    words = ["serve", str(tiny_model), "--load-format", "dummy", "--enforce-eager", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--served-model-name", SERVED]
    log = tmp_path_factory.mktemp("server") / "server.log"
    env = scrubbed_environment(os.environ, {"VLLM_CPU_KVCACHE_SPACE": "1"})
    with log.open("w") as out:
        command = [engine_python, "-m", "vllm.entrypoints.cli.main", *words]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _end(process)


def _end(process: subprocess.Popen) -> None:
    """SIGTERM, 20 s, SIGKILL to the group. The leader is reaped last: until then no other process can have its id."""
    process.terminate()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_until_healthy(url: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    pytest.fail(f"no server after {START_LIMIT_S} s: {log.read_text()[-3000:]}")


def problems(sample: Sample) -> list[str]:
    """Without starvation and short samples: a model this small answers faster than the client of two busy cores is woken."""
    allowed = ("median TPOT", "the sample lasted")
    return [problem for problem in sample.problems if not any(words in problem for words in allowed)]


def undisturbed(take: Callable[[int], Sample], seeds: Sequence[int]) -> Sample:
    """The first sample of these seeds without a problem; the last one fails the test with its problems."""
    for seed in seeds[:-1]:
        if not problems(taken := take(seed)):
            return taken
    last = take(seeds[-1])
    assert problems(last) == []
    return last


def test_seeds_in_sequence_find_nothing_in_the_prefix_cache(client: BenchClient, server_url: str, tmp_path: Path):
    warm = client.warm_up(server_url, SERVED, WORKLOAD)
    assert problems(warm) == []
    samples = [client.sample(server_url, SERVED, WORKLOAD, seed, tmp_path) for seed in (0, 1)]
    for sample in samples:
        assert problems(sample) == []
        assert (sample.requests, sample.failed, sample.output_tokens) == (32, 0, 256)
        assert sample.output_tok_s > 0 and sample.ttft_ms["p50"] > 0
        assert sample.preemptions == 0
    # Two prompts of one sample may be equal by chance (a share of 1/32), prompts of two seeds are not.
    assert all(sample.prefix_hit_ratio <= 1 / 32 for sample in samples)
    again = client.sample(server_url, SERVED, WORKLOAD, 0, tmp_path)
    assert again.prefix_hit_ratio > 0.5
    assert any("prefix cache" in problem for problem in again.problems)


def test_a_shared_prefix_is_found_as_far_as_it_is_shared(client: BenchClient, server_url: str, tmp_path: Path):
    shared = dataclasses.replace(WORKLOAD, shared_prefix_tokens=512, input_tokens=200, length_spread=0.2)
    sample = client.sample(server_url, SERVED, shared, 5, tmp_path)
    assert problems(sample) == []
    assert 0.4 < sample.prefix_hit_ratio < 0.8


def test_a_rate_drives_the_load(client: BenchClient, server_url: str, tmp_path: Path):
    paced = dataclasses.replace(WORKLOAD, concurrency=None, rate=16.0)
    sample = client.sample(server_url, SERVED, paced, 6, tmp_path)
    assert problems(sample) == []
    assert 1.5 < sample.duration_s < 10  # 32 arrivals at 16 a second


def test_a_rate_that_the_server_bears_and_one_that_it_does_not(client: BenchClient, server_url: str, tmp_path: Path):
    """A sixteenth of what the server finishes when it is full, and four times as many."""
    long = dataclasses.replace(WORKLOAD, output_tokens=100, concurrency=100, num_prompts=100)
    capacity = client.sample(server_url, SERVED, long, 20, tmp_path).requests_s
    # So few that a machine busy with other things bears them too, and two samples of eight seconds: on two cores client and
    # server may be held up for a second, in which a backlog builds up that is none of the server's.
    rate = capacity / 16
    calm = dataclasses.replace(long, concurrency=None, rate=rate, num_prompts=max(24, round(8 * rate)))
    flood = dataclasses.replace(calm, rate=capacity * 4, num_prompts=200)
    # As in a study, a sample that something else disturbed is taken again; a flood has problems of its own making.
    borne = [
        undisturbed(lambda seed: client.sample(server_url, SERVED, calm, seed, tmp_path), seeds)
        for seeds in ((21, 22, 23), (24, 25, 26))
    ]
    drowned = client.sample(server_url, SERVED, flood, 27, tmp_path)
    taken = [dataclasses.replace(sample, problems=()) for sample in (*borne, drowned)]
    told = [(sample.in_flight, sample.requests_s, sample.failed) for sample in taken]
    assert keeps_up(taken[:2], rate) is True and keeps_up(taken[2:], capacity * 4) is False, (rate, told)


def test_the_highest_load_within_an_slo_is_found(client: BenchClient, server_url: str, tmp_path: Path):
    """The limit is three times the latency of two in flight, at its slowest: some load above that breaks it, on any machine."""
    start = dataclasses.replace(WORKLOAD, concurrency=2, num_prompts=96)  # a second: in 0.3 s one pause is seen as a limit
    # Seconds apart: others may have had the machine in one of them, or in the search.
    calm = [client.sample(server_url, SERVED, start, seed, tmp_path) for seed in (30, 31, 32)]
    slo = (SloLimit("e2el_ms", 3 * max(sample.e2el_ms["p90"] for sample in calm), 0.9),)
    goal = Objective("max_concurrency", slo=slo, find_load="concurrency")

    def measure(workload: Workload, seed: int) -> Sample:
        taken = client.sample(server_url, SERVED, workload, seed, tmp_path)
        taken = with_requests(taken, json.loads(Path(taken.raw).read_text()), workload, slo)
        return dataclasses.replace(taken, problems=(), classes=())  # such a small model ends too soon for a measurement

    found = find_load(measure, start, goal, (40,))
    loads = {point.load: point.met for point in found.loads}
    best = found.samples[0].load
    assert loads[best] and best >= 2 and not all(loads.values()), found.note
    assert best == max(
        load for load, met in loads.items() if met and load < min(n for n, ok in loads.items() if not ok)
    )
    assert found.samples[0].slo_share >= 0.9 and len(found.loads) <= MOST_LOADS


def test_a_request_that_the_server_refuses_is_never_a_number(client: BenchClient, server_url: str, tmp_path: Path):
    sample = client.sample(server_url, "another-name", WORKLOAD, 7, tmp_path)
    assert sample.output_tok_s == 0
    assert any("32 of 32 requests failed" in problem for problem in sample.problems)


def test_a_client_out_of_time_is_replaced(client: BenchClient, server_url: str, tmp_path: Path):
    client._timeout_s, keep = 0.01, client._timeout_s
    client._paces.clear()  # by which a sample gets the time that the warm-up shows it to need
    try:
        lost = client.sample(server_url, SERVED, WORKLOAD, 8, tmp_path)
    finally:
        client._timeout_s = keep
    assert "did not finish within 0.01 s" in lost.problems[0]
    # Requests of the ended client may still run and be counted: another warm-up lets them end.
    client.warm_up(server_url, SERVED, WORKLOAD)
    assert problems(client.sample(server_url, SERVED, WORKLOAD, 9, tmp_path)) == []
