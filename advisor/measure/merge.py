"""The results of several client processes as one raw result, as if one client had sent the whole load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Per-request lists of vLLM's client, as far as a release writes them.
LISTS = (
    "errors", "input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "generated_texts",
)  # fmt: skip
CLIENT = "advisor_client"  # what advisor/target/bench.py adds


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One raw result. A single part is itself; of several, part i holds the requests i, i + n, i + 2n ... of the load.

    Lists are put back into the order of the load. The duration lasts from the first request of any process to the last
    answer of any. vLLM's own summary of each part is left out: there is none of the whole. Raises ValueError where the
    parts do not belong together.
    """
    if len(parts) == 1:
        return dict(parts[0])
    clients = [part.get(CLIENT) or {} for part in parts]
    if any("began" not in client for client in clients):
        raise ValueError("a client process sent no request")
    if len({client["prompts"] for client in clients}) != 1:
        raise ValueError("the client processes drew different prompts")
    names = [name for name in LISTS if all(isinstance(part.get(name), list) for part in parts)]
    began, ended = min(c["began"] for c in clients), max(c["ended"] for c in clients)
    return {
        **{name: _interleaved([part[name] for part in parts]) for name in names},
        "duration": ended - began,
        CLIENT: {"processes": clients, "prompts": clients[0]["prompts"], "began": began, "ended": ended},
    }


def client_parts(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """What each client process says of itself; empty where the client could not be watched."""
    client = raw.get(CLIENT)
    if not isinstance(client, Mapping):
        return ()
    parts = client.get("processes") or [client]
    return tuple(part for part in parts if "wall_s" in part)


def prompts_digest(raw: Mapping[str, Any]) -> str | None:
    """Digest of all prompts of the run."""
    return (raw.get(CLIENT) or {}).get("prompts")


def _interleaved(lists: Sequence[list]) -> list:
    """[[a, c, e], [b, d]] -> [a, b, c, d, e]. Raises ValueError where the lengths are not those of a division."""
    whole: list = [None] * sum(map(len, lists))
    for index, items in enumerate(lists):
        if len(items) != len(range(index, len(whole), len(lists))):
            raise ValueError("the client processes' parts do not make up one load")
        whole[index :: len(lists)] = items
    return whole
