"""What goes on at a server between the first and the last request of a wave or sample: kernels built, requests running."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import psutil

from advisor.engine.compiling import compiled, compilers

POLL_S = 2.0  # the page of /metrics costs the API server some milliseconds
_RUNNING = re.compile(r"^vllm:num_requests_running(?:\{[^}]*\})? ([0-9.e+]+)", re.MULTILINE)


class Window:
    """Context manager; after the block `compiled` and `running` say what was seen.

    `log`: the server's log, of which the part written meanwhile is read. `pids()`: the server's processes, among which
    compilers are looked for every two seconds, since FlashInfer and DeepGEMM build without a line in the log.
    """

    def __init__(self, url: str, log: Path, pids: Callable[[], Iterable[int]]):
        self.compiled: tuple[str, ...] = ()
        self.running: float | None = None  # requests, on average over the polls that saw any; None: none did
        self._url, self._log, self._pids = url, log, pids
        self._from = 0
        self._seen: list[float] = []
        self._compilers: dict[str, None] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="window", daemon=True)

    def __enter__(self) -> Window:
        self._from = self._log.stat().st_size if self._log.exists() else 0
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join(timeout=POLL_S)
        self.compiled = (
            *compiled(_since(self._log, self._from)),
            *(f"something with {name}" for name in self._compilers),
        )
        busy = [running for running in self._seen if running > 0]
        if busy:
            self.running = round(sum(busy) / len(busy), 2)

    def _poll(self) -> None:
        # verify off: there is no TLS, and reading the certificates would cost more than all polls of a short sample.
        with httpx.Client(timeout=POLL_S, trust_env=False, verify=False) as http:
            while not self._over.wait(POLL_S):
                self._compilers |= dict.fromkeys(compilers(_names(self._pids())))
                self._seen += requests_on(_page(http, self._url))


def requests_on(page: str) -> list[float]:
    """Requests that run, over all engines of the page; empty where it does not say."""
    running = _RUNNING.findall(page)
    return [sum(map(float, running))] if running else []


def _page(http: httpx.Client, url: str) -> str:
    try:
        return http.get(f"{url}/metrics").text
    except httpx.HTTPError:
        return ""


def _names(pids: Iterable[int]) -> list[str]:
    names = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            names.append(psutil.Process(pid).name())
    return names


def _since(log: Path, offset: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
