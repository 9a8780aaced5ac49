"""Records what vLLM releases make of capture settings, or compares it with the advisor's rules.

    python -m tools.record_capture record RELEASES tests/data/capture          writes cases.json and one file a release
    python -m tools.record_capture compare RELEASES [--inputs 3000] [--seed 1]   random inputs, prints the differences

RELEASES is a folder with one unpacked wheel a release: 0.26.0/vllm/config and so on. See tools/release_capture.py.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.engine.capture import CaptureRequest, capture_list, coverage
from tools.release_capture import V2_FROM, Release

DEFAULTS: dict[str, Any] = {
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "speculative_tokens": 0,
    "tensor_parallel": 1,
    "sequence_parallel": False,
    "sizes": None,
    "maximum": None,
    "performance_mode": "balanced",
    "compute_capability": None,
    "runner_v2": False,
    "cudagraph_mode": "FULL_AND_PIECEWISE",
    "sizes_by_flag": False,
    "enforce_eager": False,
}
SIXTEEN = list(range(1, 17))
CASES: list[dict[str, Any]] = [
    {"max_num_seqs": 16},
    {"max_num_seqs": 1},
    {"max_num_seqs": 256},
    {"max_num_seqs": 12, "max_num_batched_tokens": 2048},
    {"max_num_seqs": 100, "max_num_batched_tokens": 100},
    {"max_num_seqs": 256, "max_num_batched_tokens": 300},
    {"max_num_seqs": 64, "performance_mode": "interactivity"},
    {"max_num_seqs": 3, "performance_mode": "interactivity"},
    {"max_num_seqs": 64, "performance_mode": "throughput"},
    {"max_num_seqs": 1024},
    {"max_num_seqs": 1024, "compute_capability": [10, 0]},
    {"max_num_seqs": 1024, "compute_capability": [9, 0]},
    {"max_num_seqs": 1024, "compute_capability": [12, 0]},
    {"maximum": 257},
    {"maximum": 300},
    {"maximum": 512, "max_num_batched_tokens": 400},
    {"maximum": 5},
    {"maximum": 1024, "max_num_seqs": 1024},
    {"sizes": [1, 2, 4, 8], "maximum": 16},
    {"sizes": [1, 2, 4, 8], "maximum": 8},
    {"sizes": [8, 1, 4096, 8], "max_num_batched_tokens": 2048},
    {"sizes": [8, 1, 4096, 8], "max_num_batched_tokens": 2048, "sizes_by_flag": True},
    {"sizes": [4096], "max_num_batched_tokens": 2048},
    {"sizes": []},
    {"sizes": [1, 2, 4, 8], "speculative_tokens": 3, "max_num_seqs": 8},
    {"sizes": SIXTEEN, "speculative_tokens": 3, "max_num_seqs": 8},
    {"sizes": [1, 2, 4], "speculative_tokens": 3, "max_num_seqs": 8},
    {"sizes": [1, 2], "speculative_tokens": 3, "max_num_seqs": 8},
    {"sizes": [1, 2], "speculative_tokens": 3, "max_num_seqs": 8, "runner_v2": True},
    {"sizes": [8, 16], "speculative_tokens": 2, "max_num_seqs": 4},
    {"sizes": [8, 16], "speculative_tokens": 2, "max_num_seqs": 4, "runner_v2": True},
    {"sizes": [1, 2, 4, 8, 16], "speculative_tokens": 2, "tensor_parallel": 2, "sequence_parallel": True},
    {"sizes": [1, 2, 4, 8, 16], "speculative_tokens": 3, "tensor_parallel": 2, "sequence_parallel": True},
    {"sizes": [4, 6, 8], "tensor_parallel": 4, "sequence_parallel": True, "max_num_seqs": 8},
    {"tensor_parallel": 4, "sequence_parallel": True},
    {"speculative_tokens": 3, "max_num_seqs": 64},
    {"speculative_tokens": 3, "max_num_seqs": 64, "runner_v2": True},
    {"speculative_tokens": 2, "max_num_seqs": 48},
    {"speculative_tokens": 2, "max_num_seqs": 48, "runner_v2": True},
    {"speculative_tokens": 4, "max_num_seqs": 1024},
    {"speculative_tokens": 2, "max_num_seqs": 64, "cudagraph_mode": "FULL"},
    {"speculative_tokens": 2, "max_num_seqs": 64, "cudagraph_mode": "PIECEWISE"},
    {"speculative_tokens": 2, "max_num_seqs": 64, "cudagraph_mode": "PIECEWISE", "runner_v2": True},
    {"cudagraph_mode": "FULL"},
    {"cudagraph_mode": "FULL", "max_num_seqs": 1024, "runner_v2": True},
    {"cudagraph_mode": "FULL_DECODE_ONLY", "max_num_seqs": 100},
    {"cudagraph_mode": "FULL_DECODE_ONLY", "max_num_seqs": 100, "runner_v2": True},
    {"cudagraph_mode": "PIECEWISE", "max_num_seqs": 100},
    {"cudagraph_mode": "NONE"},
    {"enforce_eager": True, "cudagraph_mode": "NONE"},
    {"max_num_seqs": 12, "runner_v2": True},
    {"max_num_seqs": 1024, "runner_v2": True},
]


def filled(case: dict[str, Any]) -> dict[str, Any]:
    """The case with defaults, and `graphs` as the release's code needs it."""
    full = {**DEFAULTS, **case}
    return {**full, "graphs": not full["enforce_eager"] and full["cudagraph_mode"] != "NONE"}


def possible(case: dict[str, Any], version: tuple[int, ...]) -> bool:
    return version >= V2_FROM or not case.get("runner_v2")


def request_of(case: dict[str, Any], version: tuple[int, ...]) -> CaptureRequest:
    fields = {**DEFAULTS, **{key: value for key, value in case.items() if key != "graphs"}}
    for name in ("sizes", "compute_capability"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    return CaptureRequest(version=version, **fields)


def ranges(values: list[int], step: int) -> list[list[int]]:
    found: list[list[int]] = []
    for value in values:
        if found and found[-1][1] == value - step:
            found[-1][1] = value
        else:
            found.append([value, value])
    return found


def packed(sizes: list[int]) -> str:
    """Ascending numbers with runs of four or more folded: `1 2 4 8-248/8 256-512/16`."""
    words, place = [], 0
    while place < len(sizes):
        end = place + 1
        while end + 1 < len(sizes) and sizes[end + 1] - sizes[end] == sizes[place + 1] - sizes[place]:
            end += 1
        if end - place >= 3 and end < len(sizes):
            words.append(f"{sizes[place]}-{sizes[end]}/{sizes[place + 1] - sizes[place]}")
            place = end + 1
        else:
            words.append(str(sizes[place]))
            place += 1
    return " ".join(words)


def unpacked(text: str) -> list[int]:
    sizes: list[int] = []
    for word in text.split():
        bounds, _, step = word.partition("/")
        first, _, last = bounds.partition("-")
        sizes += range(int(first), int(last or first) + 1, int(step or 1))
    return sizes


def summary(case: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """One compact record: error, or lists; with FULL decode also graphs, uncovered ranges and tokens padded in all."""
    record: dict[str, Any] = {
        name: packed(result[name]) for name in ("configured", "sizes", "graphs") if name in result
    }
    if "error" in result:
        record["error"] = result["error"]
    if "padded" in result:
        query, padded = 1 + case["speculative_tokens"], result["padded"]
        most = min(case["max_num_seqs"], case["max_num_batched_tokens"] // query)
        batches = [count * query for count in range(1, most + 1)]
        record["uncovered"] = ranges([tokens for tokens in batches if tokens not in padded], query)
        record["padding"] = sum(size - tokens for tokens, size in padded.items())
    return record


def by_rules(case: dict[str, Any], version: tuple[int, ...]) -> dict[str, Any]:
    """The same shape of result from the advisor's rules."""
    request = request_of(case, version)
    found = capture_list(request)
    result: dict[str, Any] = {"configured": list(found.configured)}
    if found.refused:
        return {**result, "error": "refused"}
    if case["graphs"]:
        result["sizes"] = list(found.sizes)
        if version >= (0, 10, 2) and found.sizes:
            covered = coverage(found.sizes, request)
            result |= {"graphs": list(covered.full_decode_sizes), "padded": dict(covered.padded)}
    return result


def same(release: dict[str, Any], rules: dict[str, Any]) -> bool:
    if "error" in release or "error" in rules:
        return "error" in release and "error" in rules
    return all(release.get(name) == rules.get(name) for name in ("configured", "sizes", "graphs", "padded"))


def random_case(draw: random.Random) -> dict[str, Any]:
    seqs = draw.choice([1, 2, 3, 5, 8, 12, 16, 17, 32, 64, 100, 128, 200, 256, 257, 300, draw.randint(1, 700)])
    tokens = max(seqs, draw.choice([100, 256, 300, 512, 1000, 2048, 4096, 8192, draw.randint(1, 3000)]))
    case: dict[str, Any] = {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": tokens,
        "speculative_tokens": draw.choice([0, 0, 0, 1, 2, 3, 4, 5, 7]),
        "tensor_parallel": draw.choice([1, 1, 2, 3, 4, 8]),
        "sequence_parallel": draw.random() < 0.15,
        "performance_mode": draw.choice(["balanced", "balanced", "interactivity", "throughput"]),
        "compute_capability": draw.choice([None, [8, 0], [9, 0], [10, 0], [10, 3], [11, 0], [12, 0]]),
        "runner_v2": draw.random() < 0.5,
        "cudagraph_mode": draw.choice(
            ["FULL_AND_PIECEWISE"] * 4 + ["FULL_DECODE_ONLY"] * 2 + ["FULL", "PIECEWISE", "NONE"]
        ),
        "enforce_eager": draw.random() < 0.03,
        "sizes_by_flag": draw.random() < 0.5,
    }
    if draw.random() < 0.5:
        small = draw.random() < 0.5
        case["sizes"] = [draw.randint(1, 40 if small else 1200) for _ in range(draw.randint(2, 12))]
        if draw.random() < 0.03:
            case["sizes"] = [] if not case["sizes_by_flag"] else None
    if draw.random() < 0.25:
        usable = [size for size in case.get("sizes") or [] if size <= tokens]
        case["maximum"] = max(usable) if usable and draw.random() < 0.6 else draw.randint(1, 1200)
    return case


def releases(folder: Path) -> Iterator[tuple[str, tuple[int, ...], Release]]:
    found = {tuple(map(int, path.name.split("."))): path for path in folder.iterdir() if (path / "vllm").is_dir()}
    for version, path in sorted(found.items()):
        yield path.name, version, Release(path / "vllm", version)


def record(folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    (target / "cases.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in CASES) + "\n]\n")
    for name, version, release in releases(folder):
        found = []
        for case in map(filled, CASES):
            found.append(summary(case, release.run(case)) if possible(case, version) else None)
        lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in found)
        (target / f"{name}.json").write_text(f"[\n{lines}\n]\n")
        print(f"{name}: {sum(item is not None for item in found)} cases")


def compare(folder: Path, inputs: int, seed: int) -> int:
    differences = 0
    for name, version, release in releases(folder):
        draw, count, wrong = random.Random(seed), 0, 0
        while count < inputs:
            case = filled(random_case(draw))
            if not possible(case, version):
                continue
            count += 1
            expected, found = release.run(case), by_rules(case, version)
            if not same(expected, found):
                wrong += 1
                if wrong <= 3:
                    print(name, json.dumps({k: v for k, v in case.items() if v != DEFAULTS.get(k)}))
                    print("   release", summary(case, expected))
                    print("   rules  ", summary(case, found))
        print(f"{name}: {count} inputs, {wrong} differences", flush=True)
        differences += wrong
    return differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=["record", "compare"])
    parser.add_argument("releases", type=Path)
    parser.add_argument("target", type=Path, nargs="?", default=Path("tests/data/capture"))
    parser.add_argument("--inputs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.act == "record":
        record(given.releases, given.target)
        return 0
    return 1 if compare(given.releases, given.inputs, given.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
