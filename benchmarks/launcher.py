"""Seconds to the first token of cold and of warm (forked) launches: `python -m benchmarks.launcher --help`.

Cold and warm take turns. Before those of a configuration comes a forked launch that does not count: it reads files, builds kernels
and compiles for all others. A later one that compiled anew does not count either, and is made once more. The file holds
{MODEL: {CONFIG: {"cold_s": [], "warm_s": []}}} and is replaced after each launch, so that an end by Ctrl-C or SIGTERM loses the
running one only; the same command goes on from there (with the same --runs, the caches are filled already), and with --anew
forgets what the file has of this model. A launch that fails is told and leaves its place empty. With --measure, "cold_tok_s" and
"warm_tok_s" are output tokens a second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.engine.logs import parse_active
from advisor.engine.options import parse_options, split_serve_args
from advisor.engine.render import serve_command
from advisor.engine.startup import parse_startup
from advisor.errors import AdvisorError
from advisor.inspection.inspect_all import inspect_all
from advisor.journal import write_atomically
from advisor.launch import caches, gpu_memory
from advisor.launch.failure import LaunchFailed
from advisor.launch.server import Server
from advisor.launch.warm import WarmLauncher
from advisor.launch.warm_choice import COLD, WARM
from advisor.measure.client import BenchClient
from advisor.measure.workload import load_workload
from advisor.records import Candidate, Facts, Workload
from advisor.request import parse_env
from advisor.study.endings import termination_is_ctrl_c

CONFIGS = {
    "default": Candidate(),
    "graphs-only": Candidate({"compilation_mode": "NONE", "cudagraph_mode": "FULL"}),
    "eager": Candidate({"enforce_eager": True}),
}
KINDS = (COLD, WARM)
MOST_FAILURES = 2  # of a configuration's launches; one that compiles anew for the second time is one
GOALS = {"default": 0.5, "graphs-only": 0.25, "eager": 0.25}  # warm over cold, on a GPU
INTERRUPTED = 130  # exit code
KV_SPACE = {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB; unset, a server on a processor takes most of the memory


class NotForked(Exception):
    """The launch that was to be warm was a cold one."""


@dataclass(frozen=True)
class Start:
    """`tok_s`: output tokens a second, where that is measured. `compiled`: anew, so that it is not a start on filled caches."""

    start_s: float
    tok_s: float | None = None
    compiled: bool = False


@dataclass
class Bench:
    """One model on this machine."""

    facts: Facts
    serve_args: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    warm: WarmLauncher
    workload: Workload | None = None
    client: BenchClient | None = None
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._usual = gpu_memory.used(self.facts.gpu)
        self._count = max([0, *(int(found.name[:3]) for found in self.folder.glob("[0-9][0-9][0-9]-*"))])

    def launch(self, config: str, how: str) -> Start:
        """One server, started and stopped. Raises LaunchFailed or NotForked."""
        self._count += 1
        name = f"{self._count:03d}-{config}-{how}"
        engine = self.facts.engine
        command = serve_command(
            engine.python, self.facts.model.model, self.serve_args, self.env, CONFIGS[config], engine.vllm_version
        )
        self.said.clear()
        server = Server(
            command, f"advisor-{name}", self.folder / name, self.facts.gpu, usual=self._usual, retried=self.said.append,
            caches=caches.study_cache(self.folder, os.environ), warm=self.warm if how == WARM else None,
        )  # fmt: skip
        with server:
            if server.launcher != how:
                raise NotForked("; ".join(self.said) or "no reason given")
            log = server.log_text()
            compiled = parse_startup(log, server.start_s, parse_active(log)).cache == "cold"
            return Start(server.start_s, self._rate(server), compiled)

    def _rate(self, server: Server) -> float | None:
        if self.client is None or self.workload is None:
            return None
        self.client.warm_up(server.base_url, server.served_name, self.workload)
        sample = self.client.sample(server.base_url, server.served_name, self.workload, 0, server.folder)
        return sample.output_tok_s


def run(bench: Bench, configs: Sequence[str], launches: int, prime: bool, results: Results) -> None:
    """What the file lacks of `launches` of each kind. A configuration of which a launch failed twice is left."""
    for config in configs:
        if prime and any(results.lacks(config, how, launches) for how in KINDS):
            results.attempt(bench, config, WARM, count=False)
        failures, compiled = 0, set[str]()
        while lacking := [how for how in KINDS if results.lacks(config, how, launches)]:
            for how in lacking:
                done = results.attempt(bench, config, how)
                failures += done is False or (done is None and how in compiled)
                compiled |= {how} if done is None else set()
            if failures >= MOST_FAILURES:
                break


class Results:
    """The file: what was there before, and one launch after the other."""

    def __init__(self, path: Path, model: str, anew: bool = False):
        self._path, self._model = path, model
        self.all: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if anew:
            self.all.pop(model, None)

    def lacks(self, config: str, how: str, launches: int) -> bool:
        return len(self.all.get(self._model, {}).get(config, {}).get(f"{how}_s", ())) < launches

    def attempt(self, bench: Bench, config: str, how: str, count: bool = True) -> bool | None:
        """Whether the launch went well; None where it compiled anew and so is no figure."""
        told = f"{self._model} {config} {how}"
        try:
            start = bench.launch(config, how)
        except (LaunchFailed, NotForked) as problem:
            say(f"{told}: {problem}")
            return False
        waited = f", after {bench.warm.import_s:.1f} s of imports" if how == WARM and bench.warm.import_s else ""
        rate = "" if start.tok_s is None else f", {start.tok_s:.1f} tok/s"
        counts = count and not start.compiled
        why = "" if counts else " (compiled anew: does not count)" if start.compiled else " (the first: does not count)"
        say(f"{told}: {start.start_s:.2f} s{waited}{rate}{why}")
        if counts:
            found = self.all.setdefault(self._model, {}).setdefault(config, {"cold_s": [], "warm_s": []})
            found[f"{how}_s"].append(round(start.start_s, 3))
            if start.tok_s is not None:
                found.setdefault(f"{how}_tok_s", []).append(round(start.tok_s, 2))
            write_atomically(self._path, json.dumps(self.all, indent=1) + "\n")
        return None if start.compiled and count else True


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(results: Mapping[str, Any]) -> list[str]:
    """Medians as a Markdown table."""
    rows = ["| model | configuration | cold, s | warm, s | warm / cold | goal on a GPU |", "|---|---|---|---|---|---|"]
    for model, configs in results.items():
        for config, found in configs.items():
            if not (found["cold_s"] and found["warm_s"]):
                continue
            cold, warm = statistics.median(found["cold_s"]), statistics.median(found["warm_s"])
            rows.append(f"| {model} | {config} | {cold:.1f} | {warm:.1f} | {warm / cold:.2f} | {GOALS[config]:.2f} |")
    return rows


@contextlib.contextmanager
def benches(given: argparse.Namespace) -> Iterator[Bench]:
    """Inspects, and ends what was started."""
    serve_args, env = tuple(split_serve_args(given.serve_args)), parse_env(given.env)
    facts = inspect_all(given.model, given.gpu, given.engine_python, serve_args, env)
    if facts.gpu.kind == "cpu":
        env = {**KV_SPACE, **env}
    if not facts.model.has_weights and "--load-format" not in parse_options(serve_args).values:
        serve_args = (*serve_args, "--load-format", "dummy")
    folder = Path(given.runs or tempfile.mkdtemp(prefix="advisor-launcher-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{facts.gpu.name}, vLLM {facts.engine.vllm_version}; logs in {folder}")
    warm = WarmLauncher(
        facts.engine.python, facts.model.architecture, facts.gpu.kind, env, folder / "launcher.log"
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.callback(warm.close)
        bench = Bench(facts, serve_args, env, folder, warm)
        if given.measure:
            bench.workload = load_workload(given.measure)
            client = BenchClient(
                facts.engine.python, facts.model.model, root=folder, log=folder / "bench.log",
                vocabulary=facts.model.vocab_size,
            )  # fmt: skip
            bench.client = stack.enter_context(client)
        yield bench


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="model folder or hub id")
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--serve-args", default="")
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE for the server; may be repeated")
    parser.add_argument("--engine-python", default=sys.executable)
    parser.add_argument("--runs", type=Path, help="folder for logs and caches; default: a temporary one")
    parser.add_argument("--output", type=Path, required=True, help="JSON file")


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launcher", description=__doc__.splitlines()[0])
    add_server_arguments(parser)
    parser.add_argument(
        "--launches", type=int, default=3, help="of each kind and configuration, with those in the file"
    )
    parser.add_argument("--configs", default=",".join(CONFIGS), help=f"of {', '.join(CONFIGS)}, with commas")
    parser.add_argument("--no-prime", action="store_true", help="caches are filled: no launch that does not count")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of this model")
    parser.add_argument(
        "--measure", metavar="WORKLOAD", help="also measure each launch's throughput with this workload"
    )
    parser.add_argument("--json", action="store_true", help="print the file instead of a table")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = _arguments(words)
    configs = given.configs.split(",")
    if unknown := [name for name in configs if name not in CONFIGS]:
        sys.exit(f"--configs: {unknown[0]!r} is none of {', '.join(CONFIGS)}")
    results, ended = Results(given.output, Path(given.model).name, given.anew), False
    try:
        with termination_is_ctrl_c(), benches(given) as bench:
            if bench.facts.engine.platform == "cpu":
                configs = [name for name in configs if name != "graphs-only"]  # there are none
            run(bench, configs, given.launches, not given.no_prime, results)
    except KeyboardInterrupt:
        say("ended; the same command goes on from what is in the file")
        ended = True
    except AdvisorError as error:
        sys.exit(f"{error.problem}\n  {error.hint or ''}")
    print(json.dumps(results.all, indent=1) if given.json else "\n".join(table(results.all)))
    if ended:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main(sys.argv[1:])
