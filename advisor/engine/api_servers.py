"""How several API servers of one launch (`--api-server-count`) shared the requests, by their access lines in the log. Pure.

They listen on one socket, and whoever accepts first gets a connection with all its requests. On an H200 one of four got 65% of
them in one launch and 78% in the next (docs/evidence, 640 in flight): it is then the limit, and its share is luck.
"""

from __future__ import annotations

import re
from collections import Counter

_SERVER = re.compile(r"^\(ApiServer_(\d+) pid=\d+\)", re.MULTILINE)
_SERVED = re.compile(r"^\(ApiServer_(\d+) pid=\d+\) INFO: .*\"POST /v1/", re.MULTILINE)
ENOUGH = 100  # requests; fewer say nothing about shares
UNEVEN = 1.5  # times an equal share


def unequal_shares(log: str) -> str | None:
    """A note where the busiest API server served half as much again as its share; None elsewhere, or where none are told apart."""
    served = Counter(_SERVED.findall(log))
    servers, total = len(set(_SERVER.findall(log))), sum(served.values())
    if servers < 2 or total < ENOUGH:
        return None
    busiest = max(served.values()) / total
    if busiest < UNEVEN / servers:
        return None
    luck = "how they share connections is luck, and launches differ by it"
    return f"one of {servers} API servers got {busiest:.0%} of the requests: {luck}"
