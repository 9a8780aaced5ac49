"""The benchmark script: its options, its protocol, and a clean channel, against a stand-in for vLLM's client."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from advisor.target import bench
from advisor.target_process import TargetProcess

REQUEST = {
    "base_url": "http://127.0.0.1:9",
    "served_name": "served",
    "tokenizer": "model",
    "input_tokens": 60,
    "prefix_tokens": 4,
    "output_tokens": 32,
    "length_spread": 0.2,
    "num_prompts": 24,
    "concurrency": 4,
    "rate": None,
    "seed": 7,
}

# What bench.py uses of vLLM: the two functions of its client, and the tokenizer loader that the client imports by name.
FAKE_SERVE = """
import json, os
from vllm.tokenizers import get_tokenizer
print("printed while importing")
def add_cli_args(parser):
    for name in {options}:
        parser.add_argument(name, type=int if name in ("--seed", "--num-prompts") else str)
    for name in ("--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"):
        parser.add_argument(name, action="store_true")
async def main_async(args):
    print("=== a table for people ===")
    os.write(1, b"written to descriptor 1\\n")
    get_tokenizer(args.tokenizer)
    if args.seed == 13:
        raise RuntimeError("the server is gone")
    if args.seed == 14:
        os._exit(9)
    path = os.path.join(args.result_dir, args.result_filename)
    with open(path, "w") as out:
        json.dump({{name: value for name, value in vars(args).items()}}, out)
"""
FAKE_TOKENIZERS = """
import functools
def get_tokenizer(name):
    import sys
    print("loading tokenizer", name, file=sys.stderr)
    return name
cached_get_tokenizer = functools.lru_cache(get_tokenizer)
"""
VALUED = [option[0] for option in bench.options({**REQUEST, "rate": 1.5}, "/tmp/x") if len(option) == 2]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TargetProcess]]:
    """Starts bench.py over a made `vllm` package whose client has the given valued options."""
    started: list[TargetProcess] = []

    def run(options: list[str] = VALUED, serve: str = FAKE_SERVE) -> TargetProcess:
        package = tmp_path / "site" / "vllm"
        (package / "benchmarks").mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("__version__ = '0.99.0+cpu'\n")
        (package / "tokenizers.py").write_text(FAKE_TOKENIZERS)
        (package / "benchmarks" / "__init__.py").write_text("")
        (package / "benchmarks" / "serve.py").write_text(serve.format(options=options))
        env = {**os.environ, "PYTHONPATH": str(package.parent)}
        process = TargetProcess(
            sys.executable, "bench", env, tmp_path / ("bench.log" if not started else f"bench-{len(started)}.log")
        )
        started.append(process)
        return process.__enter__()

    yield run
    for process in started:
        process.close()


def ask(process: TargetProcess, folder: Path, **changes: object) -> dict:
    path = folder / "result.json"
    return process.request({**REQUEST, "result_path": str(path), **changes}, timeout_s=20)


def test_nothing_is_left_to_a_default_of_the_client():
    words = [word for option in bench.options(REQUEST, "/run/result.json") for word in option]
    given = dict(itertools.pairwise(words))
    assert given["--random-input-len"] == "60"
    assert given["--random-prefix-len"] == "4"
    assert given["--random-output-len"] == "32"
    assert given["--random-range-ratio"] == "0.2"
    assert given["--temperature"] == "0"
    assert given["--num-warmups"] == "0"
    assert given["--ready-check-timeout-sec"] == "0"
    assert given["--percentile-metrics"] == "ttft,tpot,itl,e2el"
    assert given["--metric-percentiles"] == "50,90,99"
    assert given["--max-concurrency"] == "4"
    assert given["--seed"] == "7"
    assert {"--ignore-eos", "--save-result", "--save-detailed"} < set(words)
    assert "--request-rate" not in words and "--trust-remote-code" not in words


def test_a_rate_goes_without_a_concurrency():
    options = bench.options({**REQUEST, "concurrency": None, "rate": 2.5, "trust_remote_code": True}, "/run/r.json")
    assert ["--request-rate", "2.5"] in options
    assert ["--trust-remote-code"] in options
    assert "--max-concurrency" not in {option[0] for option in options}


def test_a_run_leaves_its_result_and_answers_with_its_path(start: Callable, tmp_path: Path):
    answer = ask(start(), tmp_path)
    assert answer == {"ok": True, "result_path": str(tmp_path / "result.json"), "vllm_version": "0.99.0"}
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["seed"], result["tokenizer"], result["model"]) == (7, "model", "served")
    assert [path.name for path in tmp_path.glob("result*")] == ["result.json"]


def test_what_the_client_prints_goes_to_the_log_and_not_between_the_answers(start: Callable, tmp_path: Path):
    process = start()
    for seed in (1, 2, 3):
        assert ask(process, tmp_path, seed=seed)["ok"]
    log = (tmp_path / "bench.log").read_text()
    assert "printed while importing" in log
    assert log.count("=== a table for people ===") == log.count("written to descriptor 1") == 3


def test_the_tokenizer_is_loaded_once(start: Callable, tmp_path: Path):
    process = start()
    for seed in (1, 2, 3):
        ask(process, tmp_path, seed=seed)
    assert (tmp_path / "bench.log").read_text().count("loading tokenizer model") == 1


def test_a_failure_is_an_answer_and_the_next_run_works(start: Callable, tmp_path: Path):
    process = start()
    assert ask(process, tmp_path, seed=13) == {
        "ok": False,
        "error": "the server is gone",
        "error_class": "RuntimeError",
    }
    assert not (tmp_path / "result.json").exists()
    assert ask(process, tmp_path, seed=1)["ok"]


@pytest.mark.parametrize("changes", [{"seed": "not a number"}, {"base_url": None, "num_prompts": []}])
def test_a_bad_value_does_not_end_the_process(start: Callable, tmp_path: Path, changes: dict):
    process = start()
    assert not ask(process, tmp_path, **changes)["ok"]
    assert ask(process, tmp_path)["ok"]


def test_a_missing_field_and_a_line_that_is_no_json_are_answers():
    client = object()
    assert json.loads(json.dumps(bench.answer(client, "{")))["error_class"] == "JSONDecodeError"
    assert bench.answer(client, '{"ping": true}')["ok"] is False


def test_an_older_client_lacks_options_that_only_matter_to_newer_ones(start: Callable, tmp_path: Path):
    known = [name for name in VALUED if name not in ("--ready-check-timeout-sec", "--num-warmups", "--temperature")]
    assert ask(start(known), tmp_path)["ok"]


def test_a_client_without_a_needed_option_cannot_be_used(start: Callable, tmp_path: Path):
    answer = ask(start([name for name in VALUED if name != "--random-prefix-len"]), tmp_path)
    assert answer["error_class"] == "ClientImportError"
    assert "0.99.0 has no option --random-prefix-len" in answer["error"]


def test_an_import_that_fails_is_told_to_every_request(start: Callable, tmp_path: Path):
    process = start(serve="raise ImportError('no aiohttp here')")
    for request in ({"ping": True}, {**REQUEST, "result_path": str(tmp_path / "r.json")}):
        answer = process.request(request, timeout_s=20)
        assert answer == {
            "ok": False,
            "error": "ImportError: no aiohttp here",
            "error_class": "ClientImportError",
        }


def test_a_ping_tells_the_version(start: Callable):
    assert start().request({"ping": True}, timeout_s=20) == {"ok": True, "vllm_version": "0.99.0"}


# ---------------------------------------------------------------- the meter, and several processes

METERED_SERVE = """
import asyncio, json, os, random, time
from types import SimpleNamespace as Request
from vllm.tokenizers import get_tokenizer

class Output: pass

async def send(request_func_input, session, pbar=None):
    await asyncio.sleep(0.02)
    return request_func_input.prompt

ASYNC_REQUEST_FUNCS = {{"openai": send}}

def add_cli_args(parser):
    for name in {options}:
        kind = int if name in ("--seed", "--num-prompts", "--max-concurrency") else float if name == "--request-rate" else str
        parser.add_argument(name, type=kind)
    for name in ("--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"):
        parser.add_argument(name, action="store_true")

async def benchmark(input_requests, max_concurrency, request_rate, **rest):
    slots = asyncio.Semaphore(max_concurrency or 1000)
    function = ASYNC_REQUEST_FUNCS["openai"]
    began = time.perf_counter()
    async def one(request, due):
        await asyncio.sleep(max(0, began + due - time.perf_counter()))
        async with slots:
            return await function(request_func_input=request, session=None)
    due = lambda i: 0 if request_rate is None else (i + 1) / request_rate
    sent = await asyncio.gather(*(one(request, due(i)) for i, request in enumerate(input_requests)))
    return {{"sent": sent, "max_concurrency": max_concurrency, "request_rate": request_rate}}

async def main_async(args):
    drawn = random.Random(args.seed)
    requests = [Request(prompt=str(drawn.random()), expected_output_len=3) for _ in range(args.num_prompts)]
    if args.seed == 13:
        raise RuntimeError("the server is gone")
    result = await benchmark(
        input_requests=requests, max_concurrency=args.max_concurrency, request_rate=args.request_rate
    )
    with open(os.path.join(args.result_dir, args.result_filename), "w") as out:
        json.dump({{"all": [request.prompt for request in requests], **result}}, out)
"""


def test_the_client_is_watched_while_it_sends(start: Callable, tmp_path: Path):
    assert ask(start(serve=METERED_SERVE), tmp_path, num_prompts=12)["ok"]
    result = json.loads((tmp_path / "result.json").read_text())
    seen = result["advisor_client"]
    assert len(result["sent"]) == 12 and result["max_concurrency"] == 4
    assert 0.06 <= seen["wall_s"] < 5 and seen["wall_s"] == pytest.approx(seen["ended"] - seen["began"])
    assert 0 <= seen["cpu_s"] < seen["wall_s"]
    assert len(seen["send_lags_s"]) == 8  # the first four were due at once; each of the rest when another had ended
    assert all(0 <= lag < 5 for lag in (*seen["send_lags_s"], *seen["loop_lags_s"])) and seen["loop_lags_s"]
    assert len(seen["prompts"]) == 16


def test_with_a_rate_the_last_request_tells_the_lag(start: Callable, tmp_path: Path):
    assert ask(start(serve=METERED_SERVE), tmp_path, num_prompts=6, concurrency=None, rate=50.0)["ok"]
    assert len(json.loads((tmp_path / "result.json").read_text())["advisor_client"]["send_lags_s"]) == 1


def test_several_processes_send_one_load_together(start: Callable, tmp_path: Path):
    """All draw the same prompts; each sends its own part with its part of the load; all begin at one instant."""
    barrier = tmp_path / "barrier"
    barrier.mkdir()
    alone = start(serve=METERED_SERVE)
    assert ask(alone, tmp_path, num_prompts=11)["ok"]
    whole = json.loads((tmp_path / "result.json").read_text())
    processes = [alone, start(serve=METERED_SERVE), start(serve=METERED_SERVE)]
    for index, process in enumerate(processes):
        share = {"index": index, "of": 3, "barrier": str(barrier)}
        process.send({**REQUEST, "num_prompts": 11, "share": share, "result_path": str(tmp_path / f"part{index}.json")})
    assert all(process.receive(60)["ok"] for process in processes)
    parts = [json.loads((tmp_path / f"part{index}.json").read_text()) for index in range(3)]
    assert [part["sent"] for part in parts] == [whole["sent"][index::3] for index in range(3)]
    assert [part["max_concurrency"] for part in parts] == [2, 1, 1]
    assert {part["advisor_client"]["prompts"] for part in parts} == {whole["advisor_client"]["prompts"]}
    starts = [part["advisor_client"]["began"] for part in parts]
    instant = max(float((barrier / str(index)).read_text()) for index in range(3)) + bench.BARRIER_AHEAD_S
    assert all(instant - 0.01 <= start < instant + 5 for start in starts)  # none before it, and after it as late as others let it


def test_one_that_fails_before_the_start_holds_up_nobody(start: Callable, tmp_path: Path):
    (tmp_path / "barrier").mkdir()
    processes = [start(serve=METERED_SERVE), start(serve=METERED_SERVE)]
    for index, (process, seed) in enumerate(zip(processes, (1, 13), strict=True)):
        share = {"index": index, "of": 2, "barrier": str(tmp_path / "barrier")}
        process.send({**REQUEST, "seed": seed, "share": share, "result_path": str(tmp_path / f"part{index}.json")})
    answers = [process.receive(20) for process in processes]
    assert [answer["error"] for answer in answers] == ["not all of 2 client processes became ready", "the server is gone"]


def test_a_client_that_cannot_be_divided_says_so(start: Callable, tmp_path: Path):
    share = {"index": 0, "of": 2, "barrier": str(tmp_path)}
    answer = ask(start(), tmp_path, share=share)
    assert answer["error_class"] == "ClientImportError" and "cannot be run in several processes" in answer["error"]


def test_a_rate_is_divided_and_arrivals_differ_between_processes():
    words = {"input_requests": list(range(10)), "request_rate": 6.0, "max_concurrency": None}
    parts = [bench.divided(words, {"index": index, "of": 3}) for index in range(3)]
    assert [part["request_rate"] for part in parts] == [2.0, 2.0, 2.0]
    assert sorted(number for part in parts for number in part["input_requests"]) == list(range(10))
    assert "request_rate" not in bench.divided({**words, "request_rate": float("inf")}, {"index": 0, "of": 3})


def test_send_lags_are_from_a_slot_that_is_free_to_the_next_request():
    starts, ends = [0.0, 0.0, 1.5, 2.0], [1.0, 2.0, 3.0, 4.0]
    assert bench.send_lags(starts, ends, 2, None) == [0.5, 0.0]
    assert bench.send_lags(starts, ends, 8, None) == []
    assert bench.send_lags(starts, ends, None, 1.75) == [0.25]


@pytest.mark.engine
def test_the_real_client_knows_every_option(engine_python: str, tmp_path: Path):
    """All options that are sent exist in the installed vLLM, and a server that is not there is a result of failures."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import bench, json; client = bench.Client(); "
        "print(json.dumps([client.failure, sorted(o[0] for o in bench.options(json.loads(sys.argv[2]), '/tmp/r.json') "
        "if o[0] not in client.known)]))"
    )
    arguments = [str(Path(bench.__file__).parent), json.dumps({**REQUEST, "rate": 1.0, "trust_remote_code": True})]
    ran = subprocess.run(
        [engine_python, "-c", script, *arguments], env=env, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == [None, []]
