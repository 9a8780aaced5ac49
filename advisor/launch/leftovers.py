"""What vLLM leaves in the folder for temporary files, launch by launch, and where to look for it."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path

# Where vLLM puts its sockets, some seven a launch, which it does not remove. No part of its compile cache's key.
SOCKETS = "VLLM_RPC_BASE_PATH"
LONGEST_SOCKET_PATH = 107  # bytes that Linux takes; vLLM's own names are 36 long


def sockets_folder() -> str | None:
    """A new name for a launch's folder of sockets; None where sockets in it would have too long a path."""
    folder = str(Path(tempfile.gettempdir(), f"advisor-{secrets.token_hex(4)}"))
    return folder if len(os.fsencode(folder)) + 1 + 36 <= LONGEST_SOCKET_PATH else None


def rendezvous_files(log: str) -> list[Path]:
    """Files through which the engine's processes found each other, by the server's own log; vLLM leaves them behind."""
    found = re.findall(r"distributed_init_method=file://(\S+/vllm_dist_[0-9a-f]{32})\b", log)
    return [Path(name) for name in dict.fromkeys(found) if Path(name).parent == Path(tempfile.gettempdir())]
