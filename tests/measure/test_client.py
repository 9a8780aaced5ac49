"""The client around its process: seeds, requests, lost processes, and samples that carry what the server counted."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import EnvironmentMismatch
from advisor.measure import client as module
from advisor.measure import counters
from advisor.measure.client import WARMUP_SEEDS_FROM, BenchClient, prompt_lengths
from advisor.measure.client_pool import ClientPool, client_environment
from advisor.measure.counters import Counters
from advisor.measure.workload import load_workload
from advisor.records import Invalid
from advisor.target_process import TargetDied, TargetProcess, TargetTimeout
from tests.measure.raw_results import WORKLOAD, fail, made

URL = "http://127.0.0.1:8000"


class FakeProcess:
    """Stands in for the client's process: leaves a made result for every request, or does what `acts` says for it."""

    made: list[FakeProcess]

    def __init__(self, python: str, script: str, env: dict, log: Path | None):
        self.env, self.log, self.closed = env, log, False
        self.requests: list[dict] = []

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.closed = True

    def request(self, request: dict, timeout_s: float) -> dict:
        self.send(request)
        return self.receive(timeout_s)

    def send(self, request: dict) -> None:
        assert not self.closed
        self.requests.append(request)

    def speaks(self, timeout_s: float) -> bool:
        return True

    def receive(self, timeout_s: float) -> dict:
        act = Stage.acts.pop(0) if Stage.acts else write_result
        return act(self.requests[-1])


class Stage:
    """What the test arranges and sees: actions for the next requests, processes made, pages of the server."""

    acts: list[Callable[[dict], dict]]
    processes: list[FakeProcess]
    pages: list[Counters | None]


def write_result(request: dict, raw: dict[str, Any] | None = None) -> dict:
    raw = raw or made(request["num_prompts"])
    Path(request["result_path"]).write_text(json.dumps(raw))
    return {"ok": True, "result_path": request["result_path"], "vllm_version": "0.32.0"}


def raising(error: BaseException) -> Callable[[dict], dict]:
    def act(request: dict) -> dict:
        raise error

    return act


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> type[Stage]:
    Stage.acts, Stage.processes, Stage.pages = [], [], []

    def next_page(*_: object) -> Counters | None:
        return Stage.pages.pop(0) if Stage.pages else None

    monkeypatch.setattr(counters, "read", next_page)
    monkeypatch.setattr(counters, "read_settled", next_page)
    return Stage


def make_process(*arguments: Any) -> FakeProcess:
    Stage.processes.append(FakeProcess(*arguments))
    return Stage.processes[-1]


@pytest.fixture
def client(stage: type[Stage], tmp_path: Path):
    with BenchClient(
        "python", "/models/m", root=tmp_path, log=tmp_path / "bench.log", process=make_process
    ) as made_one:
        yield made_one


def test_a_sample_has_figures_counters_and_the_path_of_its_raw_result(client: BenchClient, tmp_path: Path):
    Stage.pages = [
        Counters(prefix_hits=5, prefix_queries=100, preemptions=1, prompt_tokens=100, generation_tokens=50, requests=2),
        Counters(
            prefix_hits=13, prefix_queries=900, preemptions=4, prompt_tokens=900, generation_tokens=138, requests=10
        ),
    ]
    sample = client.sample(URL + "/", "served", WORKLOAD, 3, tmp_path / "launch")
    assert sample.problems == ()
    assert (sample.seed, sample.requests, sample.preemptions) == (3, 8, 3)
    assert sample.prefix_hit_ratio == pytest.approx(0.01)
    assert sample.raw == "launch/bench-seed3.json"
    assert (tmp_path / sample.raw).is_file()


@pytest.mark.parametrize(("vocabulary", "refused"), [(0, True), (20, False)])
def test_how_many_prompts_may_recur_is_the_vocabularys_matter(stage: type[Stage], tmp_path: Path, vocabulary: int, refused: bool):
    found = Counters(prefix_hits=200, prefix_queries=800, prompt_tokens=800, generation_tokens=88, requests=8)
    Stage.pages = [Counters(prefix_hits=0, prefix_queries=0, prompt_tokens=0, generation_tokens=0, requests=0), found]
    with BenchClient("python", "/models/m", vocabulary=vocabulary, process=make_process) as client:
        sample = client.sample(URL, "served", WORKLOAD, 3, tmp_path)
    assert sample.prefix_hit_ratio == 0.25 and bool(sample.problems) is refused


def test_the_request_says_everything_about_the_run(client: BenchClient, tmp_path: Path):
    client.sample(URL + "/", "served", WORKLOAD, 3, tmp_path)
    assert Stage.processes[0].requests == [
        {
            "base_url": URL,
            "served_name": "served",
            "tokenizer": "/models/m",
            "prefix_tokens": 4,
            "input_tokens": 96,
            "output_tokens": 11,
            "length_spread": 0.0,
            "num_prompts": 8,
            "concurrency": 2,
            "rate": None,
            "seed": 3,
            "result_path": str(tmp_path / "bench-seed3.json"),
            "trust_remote_code": False,
        }
    ]


def test_a_second_sample_of_a_seed_does_not_overwrite_the_first(client: BenchClient, tmp_path: Path):
    names = [client.sample(URL, "served", WORKLOAD, 0, tmp_path).raw for _ in range(3)]
    assert names == ["bench-seed0.json", "bench-seed0-2.json", "bench-seed0-3.json"]


def test_warm_ups_never_use_a_measured_seed_nor_the_same_twice(client: BenchClient, tmp_path: Path):
    tiny = load_workload("tiny")
    client.warm_up(URL, "first", tiny)
    client.warm_up(URL, "first", tiny)
    client.warm_up(URL, "second", tiny)
    sent = [(r["seed"], r["num_prompts"]) for r in Stage.processes[0].requests]
    assert sent == [(WARMUP_SEEDS_FROM, 8), (WARMUP_SEEDS_FROM + 1, 8), (WARMUP_SEEDS_FROM, 8)]
    for seed in (-1, WARMUP_SEEDS_FROM):
        with pytest.raises(ValueError, match="seed"):
            client.sample(URL, "first", tiny, seed, tmp_path)


def test_a_warm_up_leaves_no_file_and_tells_its_problems(client: BenchClient):
    raw = made(4)
    fail(raw, 0)
    Stage.acts = [lambda request: write_result(request, raw)]
    warm = client.warm_up(URL, "served", WORKLOAD)
    assert warm.raw is None
    assert any("1 of 4 requests failed" in problem for problem in warm.problems)
    assert Invalid.TOO_SHORT not in warm.classes
    assert not Path(Stage.processes[0].requests[0]["result_path"]).parent.exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TargetTimeout("no answer"), "did not finish within 600 s"),
        (TargetDied("bench.py ended by signal 9 without an answer"), "died: bench.py ended by signal 9"),
    ],
)
def test_a_lost_process_costs_one_sample_and_is_replaced(
    client: BenchClient, tmp_path: Path, error: BaseException, said: str
):
    Stage.acts = [raising(error)]
    lost = client.sample(URL, "served", WORKLOAD, 0, tmp_path)
    assert said in lost.problems[0] and lost.classes == (Invalid.CLIENT_DIED,)
    assert lost.output_tok_s == 0 and lost.raw is None
    assert Stage.processes[0].closed
    assert client.sample(URL, "served", WORKLOAD, 1, tmp_path).problems == ()
    assert [process.log.name for process in Stage.processes] == ["bench.log", "bench-2.log"]


def test_several_processes_leave_one_result_of_the_whole_load(client: BenchClient, tmp_path: Path):
    def part(request: dict) -> dict:
        share = request["share"]
        raw = made(len(range(share["index"], request["num_prompts"], share["of"])))
        seen = {"prompts": "p", "cpu_s": 1.0, "wall_s": 4.0, "began": 10.0, "ended": 14.0}
        return write_result(request, {**raw, "advisor_client": seen})

    Stage.acts = [part, part]
    client.use_processes(2)
    assert len(Stage.processes) == 2  # the second one imports while the server starts
    sample = client.sample(URL, "served", WORKLOAD, 3, tmp_path)
    assert sample.problems == () and (sample.requests, sample.client.processes, sample.prompts) == (8, 2, "p")
    requests = [process.requests[0] for process in Stage.processes]
    assert [request["share"]["index"] for request in requests] == [0, 1]
    assert requests[0]["share"]["barrier"] == requests[1]["share"]["barrier"]
    assert requests[0]["seed"] == requests[1]["seed"] == 3
    assert [path.name for path in tmp_path.glob("bench-seed*")] == ["bench-seed3.json"]


def test_a_process_that_is_lost_takes_the_others_with_it(client: BenchClient, tmp_path: Path):
    Stage.acts = [raising(TargetDied("bench.py ended by signal 9"))]
    client.use_processes(2)
    lost = client.sample(URL, "served", WORKLOAD, 3, tmp_path)
    assert lost.classes == (Invalid.CLIENT_DIED,) and all(process.closed for process in Stage.processes)


def test_a_slow_server_gets_the_time_that_its_warm_up_says(client: BenchClient, tmp_path: Path, monkeypatch):
    """768 long answers of a large model take more than ten minutes, and nothing is wrong with that."""
    limits = []
    run = ClientPool.run
    monkeypatch.setattr(ClientPool, "run", lambda *a: limits.append(a[-1]) or run(*a))
    slow = made(4)
    slow |= {"duration": 80.0}
    del slow["output_throughput"], slow["request_throughput"]
    Stage.acts = [lambda request: write_result(request, slow)]
    client.warm_up(URL, "slow", WORKLOAD)  # a request in 20 s
    client.sample(URL, "slow", dataclasses.replace(WORKLOAD, num_prompts=100), 0, tmp_path)
    client.sample(URL, "another", dataclasses.replace(WORKLOAD, num_prompts=100), 0, tmp_path)
    assert limits == [600.0, 6000.0, 600.0]
    client.end_by(time.monotonic() + 100.0)
    client.sample(URL, "slow", dataclasses.replace(WORKLOAD, num_prompts=100), 1, tmp_path)
    client.end_by(time.monotonic() - 1.0)
    client.sample(URL, "slow", WORKLOAD, 2, tmp_path)
    assert 0.0 < limits[3] <= 100.0 and limits[4] == 0.0


DIES_SECOND = """
import json, os, signal, sys, time
for line in sys.stdin:
    if json.loads(line)["share"]["index"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)  # at the common start, for one that never comes
"""


def test_whoever_dies_is_noticed_while_the_others_wait_for_it(tmp_path: Path):
    script = tmp_path / "bench.py"
    script.write_text(DIES_SECOND)
    made_by = lambda python, _, env, log: TargetProcess(python, script, env, log)  # noqa: E731
    pool, begun = ClientPool(sys.executable, None, made_by), time.monotonic()
    with pytest.raises(TargetDied, match="ended by signal 9"):
        pool.run({"result_path": str(tmp_path / "result.json")}, 2, 60.0)
    assert time.monotonic() - begun < 30


def test_answers_stand_in_the_order_of_their_parts_whoever_comes_first():
    class Made:
        def __init__(self, *_: object):
            self.looks = 0

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731

        def send(self, request: dict) -> None:
            self.index = request["share"]["index"]

        def speaks(self, timeout_s: float) -> bool:
            self.looks += 1
            return self.looks > 3 * (2 - self.index)

        def receive(self, timeout_s: float) -> dict:
            return {"ok": True, "part": self.index}

    answers = ClientPool("python", None, Made).run({"result_path": "r"}, 3, 60.0)
    assert [answer["part"] for answer in answers] == [0, 1, 2]


def test_no_more_processes_than_requests_in_flight(client: BenchClient, tmp_path: Path):
    client.use_processes(3)
    client.sample(URL, "served", dataclasses.replace(WORKLOAD, concurrency=1), 3, tmp_path)
    assert [len(process.requests) for process in Stage.processes] == [1, 0, 0]


def test_a_sample_that_is_too_short_is_told(client: BenchClient, tmp_path: Path):
    Stage.acts = [lambda request: write_result(request, made(8, ttft_s=0.02, gap_s=0.008))]
    short = client.sample(URL, "served", WORKLOAD, 0, tmp_path)
    assert short.classes == (Invalid.TOO_SHORT,) and "the sample lasted 0.40 s" in short.problems[0]


def test_ctrl_c_leaves_no_process_in_the_middle_of_a_sample(client: BenchClient, tmp_path: Path):
    Stage.acts = [raising(KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        client.sample(URL, "served", WORKLOAD, 0, tmp_path)
    assert Stage.processes[0].closed
    assert client.sample(URL, "served", WORKLOAD, 0, tmp_path).problems == ()


def test_an_error_of_the_run_is_a_problem_of_its_sample(client: BenchClient, tmp_path: Path):
    Stage.acts = [lambda request: {"ok": False, "error": "no such host", "error_class": "OSError"}]
    sample = client.sample(URL, "served", WORKLOAD, 0, tmp_path)
    assert sample.problems == ("the benchmark client failed: OSError: no such host",)


def test_an_interpreter_without_the_client_ends_the_study(client: BenchClient, tmp_path: Path):
    unusable = {"ok": False, "error": "No module named 'vllm'", "error_class": "ClientImportError"}
    Stage.acts = [lambda request: unusable, lambda request: unusable]
    with pytest.raises(EnvironmentMismatch, match="No module named 'vllm'"):
        client.sample(URL, "served", WORKLOAD, 0, tmp_path)
    with pytest.raises(EnvironmentMismatch, match="cannot be used in python"):
        client.wait_until_imported()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"errors": []}'])
def test_a_raw_result_that_cannot_be_read_is_a_problem(client: BenchClient, tmp_path: Path, text: str):
    def act(request: dict) -> dict:
        Path(request["result_path"]).write_text(text)
        return {"ok": True, "result_path": request["result_path"]}

    Stage.acts = [act]
    sample = client.sample(URL, "served", WORKLOAD, 0, tmp_path)
    assert "cannot be used" in sample.problems[0]


def test_prompts_differ_between_seeds_by_a_short_prefix():
    assert prompt_lengths(load_workload("tiny")) == (4, 60)
    assert prompt_lengths(load_workload("rag")) == (3800, 3800)
    assert prompt_lengths(load_workload("tiny", input_tokens=10)) == (0, 10)


def test_the_client_sees_no_gpu_no_proxy_and_no_stray_setting():
    env = client_environment({"VLLM_PORT": "tcp://x", "NO_PROXY": "corp", "HTTP_PROXY": "http://p", "PATH": "/bin"})
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["NO_PROXY"] == env["no_proxy"] == "corp,127.0.0.1,localhost"
    assert "VLLM_PORT" not in env and "HIP_VISIBLE_DEVICES" not in env
    assert client_environment({"HIP_VISIBLE_DEVICES": "0"})["HIP_VISIBLE_DEVICES"] == ""


def test_the_process_is_started_at_once_and_ended_with_the_block(stage: type[Stage]):
    with BenchClient("python", "m", process=make_process):
        assert len(Stage.processes) == 1  # its import runs while the first server starts
    assert Stage.processes[0].closed
    assert module.TargetProcess is not FakeProcess
