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
        (package / "benchmarks").mkdir(parents=True)
        (package / "__init__.py").write_text("__version__ = '0.99.0+cpu'\n")
        (package / "tokenizers.py").write_text(FAKE_TOKENIZERS)
        (package / "benchmarks" / "__init__.py").write_text("")
        (package / "benchmarks" / "serve.py").write_text(serve.format(options=options))
        env = {**os.environ, "PYTHONPATH": str(package.parent)}
        process = TargetProcess(sys.executable, "bench", env, tmp_path / "bench.log")
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
