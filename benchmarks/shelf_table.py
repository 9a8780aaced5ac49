"""The table of profiles/README.md, written from the profiles and from what came of verifying them on another day."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.store import read_profile
from advisor.units import changes, number, percent
from benchmarks.shelf_anew import has_earlier_folder

HEAD = "| profile | machine | load | weights | verdict | default, output tok/s | verified on another day |"
_RULE = "|---|---|---|---|---|---|---|"


def table(folder: Path, verified: list[dict[str, Any]]) -> list[str]:
    """Lines of Markdown, one a profile below `folder`. `verified`: records of `advisor verify`, oldest first."""
    return [HEAD, _RULE, *(_row(path, folder, verified) for path in sorted(folder.glob("*/*.yaml")))]


def latest(verified: list[dict[str, Any]], path: Path, profile: Profile) -> dict[str, Any] | None:
    """The last record of this very profile: one that was tuned anew since, or of that name for another GPU, was not verified."""
    ours = [item for item in verified if item["profile"] == path.name and item.get("measured_at") == profile.study.created_at]
    return ours[-1] if ours else None


def with_table(text: str, lines: list[str]) -> str:
    """The text with its first table replaced. Raises InputError where there is none."""
    old = text.splitlines()
    first = next((number for number, line in enumerate(old) if line.startswith("| profile |")), None)
    if first is None:
        raise InputError("there is no table that begins with `| profile |`")
    last = first
    while last < len(old) and old[last].startswith("|"):
        last += 1
    return "\n".join([*old[:first], *lines, *old[last:]]) + "\n"


def read_verified(path: Path) -> list[dict[str, Any]]:
    """Records of a file that `--verify` adds to; none where there is no such file."""
    if not path.exists():
        return []
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["verifications"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds no verifications: {error}") from None


def _row(path: Path, folder: Path, verified: list[dict[str, Any]]) -> str:
    profile = read_profile(path)
    record = latest(verified, path, profile)
    cells = [
        f"[{path.relative_to(folder)}]({path.relative_to(folder)})",
        f"{profile.gpu.name}, vLLM {profile.software.vllm}",
        _load(profile),
        _weights(profile),
        _verdict(profile),
        number(profile.measured.default.output_tok_s.mean) if profile.measured.default else "",
        _verified(record) if record else "not yet",
    ]
    return f"| {' | '.join(cells)} |"


def _weights(profile: Profile) -> str:
    weights = "random" if profile.model.random_weights else "its own"
    return f"{weights}, [earlier folder](#earlier-model-folders)" if has_earlier_folder(profile) else weights


def _load(profile: Profile) -> str:
    load = profile.workload
    prefix = f"{load.shared_prefix_tokens} shared + " if load.shared_prefix_tokens else ""
    rate = f"{load.rate_requests_s:g} requests/s" if load.rate_requests_s is not None else f"{load.concurrency} in flight"
    if profile.objective.find_load:
        found = profile.measured.default.load if profile.measured.default else None
        unit = "in flight" if profile.objective.find_load == "concurrency" else "requests/s"
        rate = f"{found.mean:g} {unit}, found within {', '.join(profile.objective.slo or [])}" if found else "searched for"
    speculative = ", n-gram speculation" if '"ngram"' in str(profile.study.serve_args) else ""
    return f"{prefix}{load.input_tokens} in, {load.output_tokens} out, {rate}{speculative}"


def _verdict(profile: Profile) -> str:
    decision = profile.decision
    if decision.ratio is None:
        return decision.outcome.value
    ratio = decision.ratio
    value, low, high = changes(ratio.value, ratio.low, ratio.high, profile.objective.better == "more")
    what = "" if profile.objective.metric == "output_tok_s" else f" {profile.objective.metric}"
    return f"{decision.outcome.value},{what} {value} ({low} to {high})"


def _verified(record: dict[str, Any]) -> str:
    figure = record["figures"][0]
    day, told = record["verified_at"][:10], record["result"]
    if not figure.get("ratio"):
        return f"{day}: {told}"
    ratio = figure["ratio"]
    what = "" if figure.get("metric", "output_tok_s") == "output_tok_s" else f" {figure['metric']}"
    return f"{day}: {told}, default{what} {percent(ratio['value'])} ({percent(ratio['low'])} to {percent(ratio['high'])})"
