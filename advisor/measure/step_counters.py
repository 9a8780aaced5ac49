"""What a running server says about its steps: its /metrics page once, or twice with polls of the running requests between."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx

from advisor.errors import InputError

RUNNING = "vllm:num_requests_running"
_READ_TIMEOUT_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Seen:
    """`before` is None where only one page was read; `running`: requests in the last step, at each poll."""

    page: str
    before: str | None = None
    running: tuple[float, ...] = ()


def watch(url: str, seconds: float | None) -> Seen:
    """The server's page, after `seconds` of polling where given. Raises InputError where it cannot be read."""
    address = url.rstrip("/")
    address = address if address.endswith("/metrics") else f"{address}/metrics"
    # Proxies of the environment are not meant for a server that is named here.
    with httpx.Client(timeout=_READ_TIMEOUT_S, trust_env=False) as client:
        if seconds is None:
            return Seen(_page(client, address))
        before, running = _page(client, address), []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            running.append(running_requests(_page(client, address)))
            time.sleep(_POLL_S)
        return Seen(_page(client, address), before, tuple(value for value in running if value is not None))


def running_requests(page: str) -> float | None:
    """Requests in the last step, of the busiest engine; None where the page does not say."""
    values = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(RUNNING + "{")]
    return max(map(float, values), default=None)


def _page(client: httpx.Client, address: str) -> str:
    try:
        answer = client.get(address)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InputError(
            f"{address} cannot be read: {type(error).__name__}: {error}",
            "give the server's address, http://127.0.0.1:8000",
        ) from None
    return answer.text
