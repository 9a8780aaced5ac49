"""vLLM's benchmark client as one long-lived process in the target interpreter: warm-ups and samples.

The process imports vLLM once (some ten seconds) while the first server starts. It sees no GPU. When it hangs or dies it
alone is ended and a new one serves the next sample; the sample that was lost says so.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.errors import EnvironmentMismatch
from advisor.measure import counters
from advisor.measure.saturation import with_requests
from advisor.measure.summary import empty_sample, summarise
from advisor.measure.validity import problems
from advisor.measure.workload import warmup_prompts
from advisor.records import Sample, SloLimit, Workload
from advisor.target_process import TargetDied, TargetProcess, TargetTimeout, scrubbed_environment

WARMUP_SEEDS_FROM = 2_000_000_000  # measured seeds stay below; NumPy takes seeds up to 2**32
MARKER_TOKENS = 4  # see prompt_lengths
_BLOCK_TOKENS = 16  # vLLM's usual size of a cache block: a shorter prompt fills none and cannot be cached


class BenchClient:
    """Context manager over the client process.

    `tokenizer` is the model's folder or hub id. `timeout_s` bounds one warm-up or sample, and the import before the
    first. `root`: where given, `Sample.raw` is written relative to it. `log` takes what the client prints; a restarted
    one gets `bench-2.log` beside `bench.log`. `slo`: what requests are counted
    against. `process` makes the process; tests hand in a fake.
    """

    def __init__(
        self,
        python: str,
        tokenizer: str,
        *,
        timeout_s: float = 600.0,
        trust_remote_code: bool = False,
        root: Path | None = None,
        log: Path | None = None,
        slo: Sequence[SloLimit] = (),
        process: Callable[..., Any] = TargetProcess,
    ):
        self._python, self._tokenizer = python, tokenizer
        self._timeout_s, self._trust = timeout_s, trust_remote_code
        self._root, self._log, self._slo = root, log, slo
        self._make_process = process
        self._process: Any = None
        self._starts = 0
        self._warmups: dict[str, int] = {}  # served name -> warm-ups so far

    def __enter__(self) -> BenchClient:
        self._start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop()

    def wait_until_imported(self) -> str:
        """Wait for the import and return vLLM's version. Raises EnvironmentMismatch where it failed."""
        answer = self._running().request({"ping": True}, self._timeout_s)
        if not answer["ok"]:
            raise _unusable(self._python, answer)
        return answer["vllm_version"]

    def warm_up(self, server_url: str, served_name: str, workload: Workload) -> Sample:
        """Send the workload's mix with seeds that no sample has. Its result is for `problems`, never a measurement."""
        count = self._warmups.get(served_name, 0)
        self._warmups[served_name] = count + 1
        short = dataclasses.replace(workload, num_prompts=warmup_prompts(workload))
        with tempfile.TemporaryDirectory(prefix="advisor-warmup-") as folder:
            taken = self._take(server_url, served_name, short, WARMUP_SEEDS_FROM + count, Path(folder))
        return dataclasses.replace(taken, raw=None)

    def sample(self, server_url: str, served_name: str, workload: Workload, seed: int, folder: Path) -> Sample:
        """One measured run. The raw result is left in `folder`; `problems` says why a sample must not be used.

        Raises EnvironmentMismatch only where no sample can ever be taken: there is no usable benchmark client.
        """
        if not 0 <= seed < WARMUP_SEEDS_FROM:
            raise ValueError(f"seed {seed} is not in 0 to {WARMUP_SEEDS_FROM - 1}: the rest is for warm-ups")
        return self._take(server_url, served_name, workload, seed, folder)

    def _take(self, server_url: str, served_name: str, workload: Workload, seed: int, folder: Path) -> Sample:
        folder.mkdir(parents=True, exist_ok=True)
        path = _free_path(folder.absolute() / f"bench-seed{seed}.json")
        request = bench_request(workload, server_url, served_name, self._tokenizer, seed, path)
        before = counters.read(server_url)
        try:
            answer = self._running().request({**request, "trust_remote_code": self._trust}, self._timeout_s)
        except TargetTimeout:
            self._stop()
            return empty_sample(seed, f"the benchmark client did not finish within {self._timeout_s:g} s and was ended")
        except TargetDied as error:
            self._stop()
            return empty_sample(seed, f"the benchmark client died: {error.problem}")
        except BaseException:  # Ctrl-C in the middle of a sample: this process must not answer the next request
            self._stop()
            raise
        if not answer["ok"]:
            if answer["error_class"] == "ClientImportError":
                raise _unusable(self._python, answer)
            return empty_sample(seed, f"the benchmark client failed: {answer['error_class']}: {answer['error']}")
        after = counters.read_settled(server_url, before, workload.num_prompts)
        return read_sample(path, workload, seed, counters.difference(before, after), self._shown(path), self._slo)

    def _shown(self, path: Path) -> str:
        root = self._root.absolute() if self._root else None
        return str(path.relative_to(root)) if root and path.is_relative_to(root) else str(path)

    def _running(self) -> Any:
        if self._process is None:
            self._start()
        return self._process

    def _start(self) -> None:
        self._starts += 1
        log = self._log
        if log is not None and self._starts > 1:
            log = log.with_stem(f"{log.stem}-{self._starts}")  # keeps the last words of the one before
        made = self._make_process(self._python, "bench", client_environment(os.environ), log)
        self._process = made.__enter__()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.__exit__(None, None, None)


def prompt_lengths(workload: Workload) -> tuple[int, int]:
    """Prefix and rest of a prompt in tokens, as vLLM's random data set is asked for them.

    Its prompts are runs of consecutive token ids from a random start, of which there are only as many as the vocabulary
    has entries: over a few samples equal prompts recur, and the prefix cache answers them. Its prefix is drawn anew for
    each seed, so a few tokens of it in front make all prompts of a sample differ from those of any other seed, while
    they are too few to fill a cache block within the sample. A workload with a shared prefix has that already.
    """
    if workload.shared_prefix_tokens or workload.input_tokens <= _BLOCK_TOKENS:
        return workload.shared_prefix_tokens, workload.input_tokens
    return MARKER_TOKENS, workload.input_tokens - MARKER_TOKENS


def bench_request(
    workload: Workload, server_url: str, served_name: str, tokenizer: str, seed: int, result_path: Path
) -> dict[str, Any]:
    """The request that advisor/target/bench.py takes."""
    prefix, rest = prompt_lengths(workload)
    return {
        "base_url": server_url.rstrip("/"),
        "served_name": served_name,
        "tokenizer": tokenizer,
        "prefix_tokens": prefix,
        "input_tokens": rest,
        "output_tokens": workload.output_tokens,
        "length_spread": workload.length_spread,
        "num_prompts": workload.num_prompts,
        "concurrency": workload.concurrency,
        "rate": workload.rate,
        "seed": seed,
        "result_path": str(result_path),
    }


def read_sample(
    path: Path,
    workload: Workload,
    seed: int,
    counted: counters.Counters | None,
    shown: str | None = None,
    slo: Sequence[SloLimit] = (),
) -> Sample:
    """The sample in a raw result file, judged. A file that cannot be read is a sample with that problem."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        taken = with_requests(summarise(raw, seed), raw, workload, slo)
        found = problems(raw, taken, workload, counted)
    except (OSError, ValueError, TypeError, KeyError) as error:
        return empty_sample(seed, f"the raw result cannot be used: {error}")
    preemptions = counted.preemptions if counted else None
    return dataclasses.replace(
        taken,
        prefix_hit_ratio=counted.prefix_hit_ratio if counted else None,
        preemptions=None if preemptions is None else int(preemptions),
        raw=shown or str(path),
        problems=found,
    )


def client_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The client process's environment: no GPU to touch, no proxy between it and the server."""
    no_proxy = ",".join(filter(None, (inherited.get("NO_PROXY") or inherited.get("no_proxy"), "127.0.0.1,localhost")))
    added = {"CUDA_VISIBLE_DEVICES": "", "NO_PROXY": no_proxy, "no_proxy": no_proxy}
    if "HIP_VISIBLE_DEVICES" in inherited:
        added["HIP_VISIBLE_DEVICES"] = ""  # vLLM on ROCm refuses to start where the two differ
    return scrubbed_environment(inherited, added)


def _free_path(path: Path) -> Path:
    """The path, or `name-2.json` and so on where a sample of the same seed lies there already."""
    tries = (path.with_stem(f"{path.stem}-{n}") if n > 1 else path for n in itertools.count(1))
    return next(candidate for candidate in tries if not candidate.exists())


def _unusable(python: str, answer: Mapping[str, Any]) -> EnvironmentMismatch:
    problem = f"vLLM's benchmark client cannot be used in {python}: {answer['error']}"
    return EnvironmentMismatch(problem, "install vLLM with its benchmarks there: pip install 'vllm[bench]'")
