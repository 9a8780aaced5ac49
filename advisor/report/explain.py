"""`advisor explain` for people: values with where they came from, coverage in two lines, findings with their fix. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NAMES = {
    "engine": "engine",
    "attention_backend": "attention backend",
    "optimization_level": "optimization level",
    "compilation_mode": "compilation mode",
    "cudagraph_mode": "CUDA graph mode",
    "cudagraph_capture_sizes": "capture sizes",
    "max_cudagraph_capture_size": "largest capture size",
    "enforce_eager": "eager",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
}


def explain_lines(answer: Mapping[str, Any]) -> list[str]:
    """The answer of advisor/engine/explain.py as lines."""
    source = "asked the installed vLLM" if answer["source"] == "installed" else "by rules, not asked"
    head = f"{answer['model'] or 'no model named'} on vLLM {answer['vllm_version']} ({source})"
    gpu = f", {answer['gpu']}" if answer["gpu"] else ""
    lines = [head + gpu, ""]
    width = max(map(len, _NAMES.values()))
    for name, title in _NAMES.items():
        if name == "engine" and not _two_engines(answer):
            continue
        value = _value(name, answer["resolved"][name])
        asked = _asked(name, answer)
        lines.append(f"  {title:<{width}}  {value}  ({answer['origins'][name]}{asked})")
    lines += ["", *_coverage(answer), ""]
    lines += _findings(answer["findings"])
    lines += [f"assumed: {sentence}" for sentence in answer["assumed"]]
    return lines


def _two_engines(answer: Mapping[str, Any]) -> bool:
    """Up to 0.10.2 there is V0 beside V1; later the line says nothing."""
    return tuple(map(int, answer["vllm_version"].split(".")[:2])) < (0, 11)


def _value(name: str, value: Any) -> str:
    if value is None:
        return "not known" if name != "optimization_level" else "none before 0.12"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return _sizes(value)
    return str(value)


def _sizes(sizes: Sequence[int]) -> str:
    """At most nine of them: 1 2 4 8 .. 496 512 (51 sizes)."""
    if not sizes:
        return "none"
    texts = [str(size) for size in sizes]
    if len(texts) <= 9:
        return " ".join(texts)
    return f"{' '.join(texts[:5])} .. {' '.join(texts[-2:])} ({len(texts)} sizes)"


def _asked(name: str, answer: Mapping[str, Any]) -> str:
    """`, asked for X` where something else came of it."""
    wanted = answer["requested"].get(name)
    got = answer["resolved"][name]
    if wanted is None or str(wanted).upper() == str(got).upper():
        return ""
    return f", asked for {_value(name, wanted)}"


def _coverage(answer: Mapping[str, Any]) -> list[str]:
    coverage = answer["coverage"]
    top, full = coverage["operating_point"], coverage["full_decode_max"]
    if top is None and answer["resolved"]["cudagraph_mode"] not in (None, "NONE"):
        return ["coverage: which decode batches run in a FULL graph is not known here"]
    if top is None:
        return ["coverage: no CUDA graphs"]
    if not full:
        return [f"coverage: no decode batch runs in a FULL graph; the largest possible has {top} tokens"]
    if not coverage["uncovered_decode_batches"]:
        return [f"coverage: every decode batch, up to {top} tokens, runs in a FULL graph"]
    ranges = ", ".join(
        f"{low}-{high}" if low != high else str(low) for low, high in coverage["uncovered_decode_batches"]
    )
    return [
        f"coverage: decode batches up to {full} tokens run in FULL graphs; the largest possible has {top}",
        f"          not in a FULL graph: {ranges}",
    ]


def _findings(findings: Sequence[Mapping[str, str]]) -> list[str]:
    if not findings:
        return ["no findings"]
    lines = []
    for finding in findings:
        lines.append(f"{finding['severity']}: {finding['message']}  [{finding['code']}]")
        if finding["fix"]:
            lines.append(f"    fix: {finding['fix']}")
    return lines
