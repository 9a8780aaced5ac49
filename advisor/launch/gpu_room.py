"""How much GPU memory a command will insist on finding free, and on how many GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.engine.options import parse_options
from advisor.errors import InputError

# vLLM's default is 0.9 up to 0.19 and 0.92 from 0.20 on (config/cache.py of the releases): the smaller one accuses nobody
# wrongly, and what fits between the two is found when the launch fails.
LEAST_DEFAULT_SHARE = 0.9


@dataclass(frozen=True)
class Room:
    """share: of each GPU's memory, None where it cannot be told; count: GPUs from the first visible one on."""

    share: float | None = None
    count: int = 1


def asked(argv: tuple[str, ...]) -> Room:
    """What a `... serve MODEL OPTIONS` command asks for. A config file may say anything, so then the share is not known."""
    start = argv.index("serve") + 2 if "serve" in argv else len(argv)
    try:
        options = parse_options(argv[start:]).values
    except InputError:
        return Room()
    unknown = None if "--config" in options else LEAST_DEFAULT_SHARE
    share = _number(options.get("--gpu-memory-utilization"), unknown)
    sizes = (options.get(f"--{kind}-parallel-size") for kind in ("tensor", "pipeline", "data"))
    count = 1
    for size in sizes:
        count *= int(_number(size, 1.0) or 1)
    return Room(share, count)


def _number(value: object, otherwise: float | None) -> float | None:
    try:
        return otherwise if value is None else float(str(value))
    except ValueError:
        return otherwise
