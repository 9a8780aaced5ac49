"""vLLM's benchmark client in long-lived processes of the target interpreter: warm-ups and samples.

One process, unless `use_processes` asks for more (advisor/measure/client_pool.py). A sample that is lost with its process says
so, and the next one gets a new process.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.errors import EnvironmentMismatch
from advisor.measure import counters
from advisor.measure.client_load import client_load, most_processes
from advisor.measure.client_pool import ClientPool
from advisor.measure.merge import merged, prompts_digest
from advisor.measure.saturation import with_requests
from advisor.measure.slices import slices_of
from advisor.measure.summary import empty_sample, summarise
from advisor.measure.validity import Problem, judge, judge_length, with_problems
from advisor.measure.warmup import wave_prompts
from advisor.records import Invalid, Sample, SloLimit, Workload
from advisor.target_process import TargetDied, TargetProcess, TargetTimeout

WARMUP_SEEDS_FROM = 2_000_000_000  # measured seeds stay below; NumPy takes seeds up to 2**32
MARKER_TOKENS = 4  # see prompt_lengths
SLOWER = 3.0  # than its warm-up a sample may be, before its client is given up
_BLOCK_TOKENS = 16  # vLLM's usual size of a cache block: a shorter prompt fills none and cannot be cached


class BenchClient:
    """Context manager over the client's processes.

    `tokenizer` is the model's folder or hub id. `timeout_s` bounds one warm-up or sample, and the import before the
    first; a sample gets more where the last warm-up's pace asks for it. `root`: where given, `Sample.raw` is written
    relative to it. `log` takes what the client prints; a restarted one gets `bench-2.log` beside `bench.log`. `slo`: what
    requests are counted against. `vocabulary`: entries of the model's, 0 where it is not known. `process` makes the process; tests
    hand in a fake.
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
        vocabulary: int = 0,
        process: Callable[..., Any] = TargetProcess,
    ):
        self._python, self._tokenizer = python, tokenizer
        self._timeout_s, self._trust = timeout_s, trust_remote_code
        self._root, self._slo, self._vocabulary = root, slo, vocabulary
        self._pool, self._processes = ClientPool(python, log, process), 1
        self._warmups: dict[str, int] = {}  # served name -> warm-ups so far
        self._paces: dict[str, float] = {}  # served name -> requests a second of its last warm-up
        self._ends_at = math.inf

    def __enter__(self) -> BenchClient:
        self._pool.grow(1)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._pool.stop()

    def use_processes(self, count: int) -> None:
        """From now on so many processes send the load together. New ones begin to import at once."""
        self._processes = count
        self._pool.grow(count)

    def end_by(self, moment: float) -> None:
        """From now on no warm-up or sample goes on after that moment of time.monotonic(); one that would is lost."""
        self._ends_at = moment

    def wait_until_imported(self) -> str:
        """Wait for the import and return vLLM's version. Raises EnvironmentMismatch where it failed."""
        (answer,) = self._pool.run({"ping": True}, 1, self._timeout_s)
        if not answer["ok"]:
            raise _unusable(self._python, answer)
        return answer["vllm_version"]

    def warm_up(self, server_url: str, served_name: str, workload: Workload) -> Sample:
        """Send one wave of the workload's mix, with a seed that no sample has. Its figures are never a measurement."""
        count = self._warmups.get(served_name, 0)
        self._warmups[served_name] = count + 1
        short = dataclasses.replace(workload, num_prompts=wave_prompts(workload))
        with tempfile.TemporaryDirectory(prefix="advisor-warmup-") as folder:
            taken = self._take(server_url, served_name, short, WARMUP_SEEDS_FROM + count, Path(folder))
        self._paces[served_name] = taken.requests_s
        return dataclasses.replace(taken, raw=None)

    def sample(self, server_url: str, served_name: str, workload: Workload, seed: int, folder: Path) -> Sample:
        """One measured run. The raw result is left in `folder`; `problems` says why a sample must not be used.

        Raises EnvironmentMismatch only where no sample can ever be taken: there is no usable benchmark client.
        """
        if not 0 <= seed < WARMUP_SEEDS_FROM:
            raise ValueError(f"seed {seed} is not in 0 to {WARMUP_SEEDS_FROM - 1}: the rest is for warm-ups")
        taken = self._take(server_url, served_name, workload, seed, folder)
        return taken if taken.problems else with_problems(taken, judge_length(taken, workload))

    def _take(self, server_url: str, served_name: str, workload: Workload, seed: int, folder: Path) -> Sample:
        folder.mkdir(parents=True, exist_ok=True)
        path = _free_path(folder.absolute() / f"bench-seed{seed}.json")
        request = bench_request(workload, server_url, served_name, self._tokenizer, seed, path)
        processes = min(self._processes, workload.concurrency or workload.num_prompts)
        before, limit_s = counters.read(server_url), self._limit_s(served_name, workload)
        try:
            answers = self._pool.run({**request, "trust_remote_code": self._trust}, processes, limit_s)
        except TargetTimeout:
            return _lost(seed, f"the benchmark client did not finish within {limit_s:.4g} s and was ended")
        except TargetDied as error:
            return _lost(seed, f"the benchmark client died: {error.problem}")
        if not (answer := answers[-1])["ok"]:
            if answer["error_class"] == "ClientImportError":
                raise _unusable(self._python, answer)
            return _lost(seed, f"the benchmark client failed: {answer['error_class']}: {answer['error']}")
        if processes > 1 and (problem := _join(path, [Path(answer["result_path"]) for answer in answers])):
            return _lost(seed, problem)

        def counted(completed: int) -> counters.Counters | None:
            """Requests that failed are in no server's count: waiting for them would cost seconds for nothing."""
            return counters.difference(before, counters.read_settled(server_url, before, completed))

        return read_sample(path, workload, seed, counted, self._shown(path), self._slo, self._vocabulary)

    def _limit_s(self, served_name: str, workload: Workload) -> float:
        """`timeout_s`, or longer where the server's own pace says that so many requests take longer than that; as is left."""
        pace = self._paces.get(served_name, 0.0)
        limit_s = max(self._timeout_s, SLOWER * workload.num_prompts / pace) if pace > 0 else self._timeout_s
        return min(limit_s, max(self._ends_at - time.monotonic(), 0.0))

    def _shown(self, path: Path) -> str:
        root = self._root.absolute() if self._root else None
        return str(path.relative_to(root)) if root and path.is_relative_to(root) else str(path)


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
    counting: Callable[[int], counters.Counters | None] | None,
    shown: str | None = None,
    slo: Sequence[SloLimit] = (),
    vocabulary: int = 0,
) -> Sample:
    """The sample in a raw result file, judged. A file that cannot be read is a sample with that problem.

    `counting(completed)`: what the server counted meanwhile, as soon as it has counted so many requests.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        taken = with_requests(summarise(raw, seed), raw, workload, slo)
        taken = dataclasses.replace(
            taken, client=client_load(raw), prompts=prompts_digest(raw), slices=slices_of(raw)
        )
        counted = counting(taken.requests) if counting else None
        found = judge(raw, taken, workload, counted, most_processes(usable_cores(), workload), vocabulary)
    except (OSError, ValueError, TypeError, KeyError) as error:
        return _lost(seed, f"the raw result cannot be used: {error}")
    preemptions = counted.preemptions if counted else None
    taken = dataclasses.replace(
        taken,
        prefix_hit_ratio=counted.prefix_hit_ratio if counted else None,
        preemptions=None if preemptions is None else int(preemptions),
        raw=shown or str(path),
    )
    return with_problems(taken, found)


def usable_cores() -> int:
    """Processor cores that this process, and so the client, may use."""
    return len(os.sched_getaffinity(0))


def _lost(seed: int, text: str) -> Sample:
    """A sample of which there is nothing to summarise."""
    return with_problems(empty_sample(seed), [Problem(Invalid.CLIENT_DIED, text)])


def _join(path: Path, parts: Sequence[Path]) -> str | None:
    """Write the parts of a load as one raw result and remove them; what is wrong with them, or None."""
    try:
        raw = merged([json.loads(part.read_text(encoding="utf-8")) for part in parts])
        path.write_text(json.dumps(raw), encoding="utf-8")
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"the raw results of {len(parts)} client processes cannot be put together: {error}"
    for part in parts:
        part.unlink()
    return None


def _free_path(path: Path) -> Path:
    """The path, or `name-2.json` and so on where a sample of the same seed lies there already."""
    tries = (path.with_stem(f"{path.stem}-{n}") if n > 1 else path for n in itertools.count(1))
    return next(candidate for candidate in tries if not candidate.exists())


def _unusable(python: str, answer: Mapping[str, Any]) -> EnvironmentMismatch:
    problem = f"vLLM's benchmark client cannot be used in {python}: {answer['error']}"
    return EnvironmentMismatch(problem, "install vLLM with its benchmarks there: pip install 'vllm[bench]'")
