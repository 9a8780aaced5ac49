"""A forked vLLM is the same server as an executed one, and is up sooner: ten configurations of the CPU build, both ways."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from advisor.engine.logs import parse_active
from advisor.launch.server import Server
from advisor.launch.warm import WarmLauncher
from advisor.records import Active, Command

from .conftest import CPU
from .test_server import wait_for

pytestmark = pytest.mark.engine

ENV = {"VLLM_CPU_KVCACHE_SPACE": "1"}
PLAIN = ("--load-format", "dummy", "--max-model-len", "512", "--enforce-eager")
CONFIGS = {
    "eager": ((), {}),
    "few sequences": (("--max-num-seqs", "4"), {}),
    "small steps": (("--max-num-batched-tokens", "128"), {}),
    "no prefix cache": (("--no-enable-prefix-caching",), {}),
    "blocks of 64": (("--block-size", "64"), {}),
    "float32": (("--dtype", "float32"), {}),
    "other weights": (("--seed", "7"), {}),
    "priorities": (("--scheduling-policy", "priority"), {}),
    "variable of the candidate": ((), {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}),
    "compiled": (("--no-enforce-eager",), {}),
}
PROMPTS = ("one two three", "the quick brown fox jumps over the lazy dog", "a b c d e f g " * 20)
DIFFERENT = re.compile(r"served_model_name=\S+|advisor-(?:cold|warm)\S*")
SECONDS = ("load_s", "compile_s", "capture_s", "engine_init_s", "rewrites")


@dataclasses.dataclass
class Seen:
    start_s: float
    active: Active
    resolved: str
    answers: list[dict]


@pytest.fixture(scope="module")
def warm(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmLauncher]:
    log = tmp_path_factory.mktemp("launcher") / "launcher.log"
    launcher = WarmLauncher(engine_python, "LlamaForCausalLM", "cpu", ENV, log)
    with contextlib.closing(launcher):
        yield launcher


def look(python: str, model: Path, folder: Path, name: str, warm: WarmLauncher | None) -> Seen:
    options, env = CONFIGS[name]
    argv = (python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), *PLAIN, *options)
    how = "warm" if warm else "cold"
    told: list[str] = []
    server = Server(Command(argv, {**ENV, **env}), f"advisor-{how}", folder / how, CPU, warm=warm, retried=told.append)
    with server:
        assert server.launcher == how, told
        answers = [answer(server, prompt) for prompt in PROMPTS]
        memory = shared_memory(server.pids())
    assert memory and not [path for path in memory if path.exists()]
    log = server.log_text()
    config = next(line for line in log.splitlines() if "Initializing a V1 LLM engine" in line)
    resolved = DIFFERENT.sub("", config[config.index("with config:") :])
    return Seen(server.start_s, parse_active(log), resolved, answers)


def shared_memory(pids: list[int]) -> set[Path]:
    """Files of shared memory that the processes have."""
    found = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        found |= {Path(line.split()[5]) for line in maps if len(line.split()) == 6 and "/dev/shm/psm_" in line}
    return found


def answer(server: Server, prompt: str) -> dict:
    body = {
        "model": server.served_name, "prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 3, "ignore_eos": True,
        "prompt_logprobs": 1,
    }  # fmt: skip
    choice = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=120).json()["choices"][0]
    return {"text": choice["text"], "log_probabilities": choice["logprobs"]["token_logprobs"], "all": choice["logprobs"]}


def facts(active: Active) -> dict:
    """All that the log says, but for times, and lines with times in them."""
    return {field.name: getattr(active, field.name) for field in dataclasses.fields(active) if field.name not in SECONDS}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_server(engine_python: str, tiny_model: Path, tmp_path: Path, warm: WarmLauncher, name: str) -> None:
    with ThreadPoolExecutor(2) as pool:  # beside each other: half a minute each, mostly on one core
        both = [pool.submit(look, engine_python, tiny_model, tmp_path, name, how) for how in (None, warm)]
    executed, forked = (one.result() for one in both)
    assert forked.resolved == executed.resolved
    assert facts(forked.active) == facts(executed.active)
    assert [one["text"] for one in forked.answers] == [one["text"] for one in executed.answers]
    for mine, theirs in zip(forked.answers, executed.answers, strict=True):
        differences = [
            abs(a - b) for a, b in zip(mine["log_probabilities"], theirs["log_probabilities"], strict=True)
        ]
        assert max(differences) <= 1e-5 and not any(map(math.isnan, differences))
    assert forked.start_s < 0.75 * executed.start_s, (forked.start_s, executed.start_s)


def test_the_launcher_is_as_before_and_leaves_nothing(warm: WarmLauncher) -> None:
    """After all of the above; on its own it has nothing to look at."""
    if warm.pid is None:
        pytest.skip("no server was forked")
    process = psutil.Process(warm.pid)
    assert wait_for(lambda: process.children() == [])
    kinds = {os.readlink(f"/proc/{warm.pid}/fd/{fd}").partition(":")[0] for fd in os.listdir(f"/proc/{warm.pid}/fd")}
    assert "pipe" not in kinds
    assert warm.facts["left_out"] == [] and warm.facts["failed"] == []
