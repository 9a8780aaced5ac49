"""The benchmark client's processes in the target interpreter: one, or several that send one load together.

Each imports vLLM once (some ten seconds), as soon as it is started. It sees no GPU. When one hangs or dies all are ended,
and new ones serve the next run.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.target_process import TargetProcess, scrubbed_environment

WATCH_S = 0.1  # how long one process is watched before the next one


class ClientPool:
    """`log` takes what the processes print: `bench.log`, `bench-2.log` ... by the order in which they were started."""

    def __init__(self, python: str, log: Path | None = None, process: Callable[..., Any] = TargetProcess):
        self._python, self._log, self._make = python, log, process
        self._processes: list[Any] = []
        self._starts = 0

    def grow(self, size: int) -> None:
        """Have `size` processes at least; their import goes on while the caller does."""
        while len(self._processes) < size:
            self._start()

    def run(self, request: Mapping[str, Any], size: int, timeout_s: float) -> list[dict[str, Any]]:
        """The answers of `size` processes that send the request's load together, each its own part; the paths of their
        results are in `result_path`. After a failure only the answers up to it. Raises TargetDied or TargetTimeout;
        then, and at Ctrl-C, no process is left.
        """
        self.grow(size)
        try:
            if size == 1:
                return [self._processes[0].request(request, timeout_s)]
            with tempfile.TemporaryDirectory(prefix="advisor-barrier-") as barrier:
                return self._together(request, size, barrier, time.monotonic() + timeout_s)
        except BaseException:  # Ctrl-C in the middle of a sample: these processes must not answer the next request
            self.stop()
            raise

    def stop(self) -> None:
        processes, self._processes = self._processes, []
        for process in processes:
            process.__exit__(None, None, None)

    def _together(self, request: Mapping[str, Any], size: int, barrier: str, deadline: float) -> list[dict[str, Any]]:
        used = self._processes[:size]
        for index, process in enumerate(used):
            path = f"{request['result_path']}.part{index}"
            share = {"index": index, "of": size, "barrier": barrier}
            process.send({**request, "result_path": path, "share": share})
        answers: dict[int, dict[str, Any]] = {}
        while waiting := [index for index in range(size) if index not in answers]:
            index = _first_of(used, waiting, deadline)
            answer = used[index].receive(max(0.1, deadline - time.monotonic()))
            if not answer["ok"]:
                self.stop()  # the others wait for this one, or send a part of a load
                return [*answers.values(), answer]
            answers[index] = answer
        return [answers[index] for index in range(size)]

    def _start(self) -> None:
        self._starts += 1
        log = self._log
        if log is not None and self._starts > 1:
            log = log.with_stem(f"{log.stem}-{self._starts}")  # keeps the last words of the one before
        made = self._make(self._python, "bench", client_environment(os.environ), log)
        self._processes.append(made.__enter__())


def _first_of(processes: Sequence[Any], waiting: Sequence[int], deadline: float) -> int:
    """The one that answers, or dies, before the others, which would wait for a dead one at the common start for minutes."""
    while time.monotonic() < deadline:
        for index in waiting:
            if processes[index].speaks(WATCH_S):
                return index
    return waiting[0]


def client_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The client process's environment: no GPU to touch, no proxy between it and the server."""
    no_proxy = ",".join(filter(None, (inherited.get("NO_PROXY") or inherited.get("no_proxy"), "127.0.0.1,localhost")))
    added = {"CUDA_VISIBLE_DEVICES": "", "NO_PROXY": no_proxy, "no_proxy": no_proxy}
    if "HIP_VISIBLE_DEVICES" in inherited:
        added["HIP_VISIBLE_DEVICES"] = ""  # vLLM on ROCm refuses to start where the two differ
    return scrubbed_environment(inherited, added)
