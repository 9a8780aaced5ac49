"""Named lists of CUDA-graph capture sizes, made for a workload. Sizes are tokens in a batch; a decode batch has one a request.

vLLM's own list is 1, 2, 4, then every 8th up to 256, then every 16th up to 512, cut at max_num_batched_tokens (sources of
0.11.2 to 0.33). A batch runs in the next larger graph; above the largest there is no graph.
"""

from __future__ import annotations

from bisect import bisect_left

NAMES = ("operating-point", "powers-of-two", "every-batch")


def named_list(name: str, concurrency: int, max_num_seqs: int, max_num_batched_tokens: int) -> list[int]:
    """The sizes of a named list, ascending, each between 1 and what the scheduler can put into one batch.

    `operating-point`: a short ladder that ends exactly on the load's concurrency, and covers nothing above it.
    `powers-of-two`: 1, 2, 4 ... up to max_num_seqs: fewest graphs, most padding, and no batch without a graph.
    `every-batch`: each size up to 32, then vLLM's steps up to max_num_seqs: least padding, most graphs.
    """
    most = max(1, min(max_num_seqs, max_num_batched_tokens))
    top = max(1, min(concurrency, most))
    if name == "operating-point":
        sizes = _powers(top) + [size for size in (top // 4 * 3, top) if size > 0]
    elif name == "powers-of-two":
        sizes = [*_powers(most), most]
    elif name == "every-batch":
        sizes = [*range(1, min(32, most) + 1), *range(40, min(256, most) + 1, 8), *range(272, most + 1, 16), most]
    else:
        raise ValueError(f"no capture list is called {name!r}")
    return sorted(set(sizes))


def _powers(top: int) -> list[int]:
    return [2**exponent for exponent in range(top.bit_length()) if 2**exponent <= top]


def padded(batch: int, sizes: list[int]) -> int | None:
    """The captured size that a batch of `batch` tokens runs in, or None above the largest."""
    index = bisect_left(sizes, batch)
    return sizes[index] if index < len(sizes) else None
