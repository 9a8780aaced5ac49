"""What a command comes to, in one dictionary: requested and resolved values, where they came from, coverage and findings.

    {"vllm_version", "source", "model", "gpu", "requested": {}, "resolved": {}, "origins": {}, "coverage": {}, "findings": [],
     "assumed": []}

`requested` names settings as everywhere in the advisor: abstract names, flags with their dashes, variables in capitals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.engine.capture import Coverage, remedy
from advisor.engine.foretold import capture_request, decode_coverage, speculative_tokens
from advisor.engine.options import ATTENTION, COMPILATION
from advisor.engine.reading.command_line import ReadCommand
from advisor.engine.reading.pasted_words import CONFIG_FILE, FLAG
from advisor.engine.rules.backend_choice import asked_backend
from advisor.engine.rules.requested import Requested, read_request
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.engine.versions import version_text
from advisor.records import Finding, ModelFacts, Resolved

Version = tuple[int, ...]

RESOLVED = (
    "engine",
    "optimization_level",
    "compilation_mode",
    "cudagraph_mode",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "attention_backend",
    "enforce_eager",
    "max_num_seqs",
    "max_num_batched_tokens",
)
SEVERITIES = ("error", "warning", "info")
# Setting -> the options that can set it, for where it came from and for what is left of the person's options.
_SET_BY: dict[str, tuple[str, ...]] = {
    "optimization_level": ("--optimization-level",),
    "compilation_mode": (COMPILATION,),
    "cudagraph_mode": (COMPILATION,),
    "cudagraph_capture_sizes": ("--cudagraph-capture-sizes", "--cuda-graph-sizes", COMPILATION),
    "max_cudagraph_capture_size": ("--max-cudagraph-capture-size", "--cuda-graph-sizes", COMPILATION),
    "attention_backend": ("--attention-backend", ATTENTION),
    "enforce_eager": ("--enforce-eager",),
    "max_num_seqs": ("--max-num-seqs",),
    "max_num_batched_tokens": ("--max-num-batched-tokens",),
}
_MEASURED = "advisor buckets says which sizes pay for the batches that run"
_ABSTRACT_KEYS = ("mode", "level", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size")


@dataclass(frozen=True)
class Gpu:
    """The GPU to explain for. None: not given, the rules assume one and say so."""

    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_gib: float | None = None
    platform: str = "cuda"


def explain(
    read: ReadCommand,
    version: Version,
    gpu: Gpu = Gpu(),
    model: ModelFacts | None = None,
    installed: Mapping[str, Any] | None = None,
    said: tuple[Finding, ...] = (),
) -> dict[str, Any]:
    """The answer for a command that was read. `installed`: what advisor/target/resolve.py answered, if it was asked.

    `said` are findings from outside, such as a version that had to be replaced. Findings come most severe first.
    """
    rules = resolve_by_rules(
        read.options,
        read.env,
        version,
        compute_capability=gpu.compute_capability,
        gpu_memory_gib=gpu.memory_gib,
        platform=gpu.platform,
        model=model,
    )
    resolved = _with_installed(rules, installed) if installed else rules
    asked = read_request(read.options, read.env, version)
    covered = decode_coverage(asked, resolved.values, version, gpu.platform, gpu.compute_capability)
    findings = [*said, *read.findings, *resolved.findings, *_coverage_findings(covered, resolved, asked, gpu, version)]
    return {
        "vllm_version": resolved.vllm_version,
        "source": resolved.source,
        "model": read.model,
        "gpu": gpu.name,
        "requested": requested(read, asked, version),
        "resolved": {name: resolved.values.get(name) for name in RESOLVED},
        "origins": {name: _origin(name, resolved.origins.get(name, "default"), read) for name in RESOLVED},
        "coverage": _coverage_json(covered),
        "findings": [asdict(finding) for finding in ordered(findings)],
        "assumed": list(resolved.assumed),
    }


def ordered(findings: list[Finding]) -> list[Finding]:
    """Most severe first, in their order otherwise, each once."""
    return sorted(dict.fromkeys(findings), key=lambda finding: SEVERITIES.index(finding.severity))


def has_errors(answer: Mapping[str, Any]) -> bool:
    return any(finding["severity"] == "error" for finding in answer["findings"])


# ---------------------------------------------------------------- requested


def requested(read: ReadCommand, asked: Requested, version: Version) -> dict[str, Any]:
    """Everything that the command sets: abstract settings first, then other flags, then variables."""
    choice = asked_backend(read.options, read.env, version)
    abstract = {
        "optimization_level": asked.level,
        "compilation_mode": asked.compilation,
        "cudagraph_mode": asked.graphs,
        "cudagraph_capture_sizes": list(asked.sizes) if asked.sizes is not None else None,
        "max_cudagraph_capture_size": asked.maximum,
        "attention_backend": choice.name or read.options.values.get("--attention-backend"),
        "enforce_eager": read.options.values.get("--enforce-eager"),
        "max_num_seqs": asked.max_num_seqs,
        "max_num_batched_tokens": asked.max_num_batched_tokens,
    }
    found = {name: value for name, value in abstract.items() if value is not None}
    covered = {option for options in _SET_BY.values() for option in options}
    for option, value in read.options.values.items():
        if option not in covered:
            found[option] = value
        elif isinstance(value, Mapping):
            keys = _ABSTRACT_KEYS if option == COMPILATION else ("backend",)
            rest = {key: item for key, item in value.items() if key not in keys}
            found.update({option: rest} if rest else {})
    return {**found, **read.env, **read.unknown}


def _origin(name: str, origin: str, read: ReadCommand) -> str:
    """A flag that stands in the config file comes from there."""
    if origin != FLAG:
        return origin
    given = [read.origins[option] for option in _SET_BY.get(name, ()) if option in read.origins]
    return CONFIG_FILE if given and all(one == CONFIG_FILE for one in given) else origin


# ---------------------------------------------------------------- the installed vLLM


def _with_installed(rules: Resolved, answer: Mapping[str, Any]) -> Resolved:
    """vLLM's own values over those of the rules. It does not know yet what the backend makes of graph mode and sizes."""
    if not answer.get("ok"):
        refusal = f"the installed vLLM refuses it: {answer.get('error', 'no reason given')}"
        known = any(finding.severity == "error" for finding in rules.findings)
        finding = Finding("info" if known else "error", "refused-by-installed", refusal)
        return replace(rules, source="installed", findings=(*rules.findings, finding))
    theirs = answer["resolved"]
    values = dict(rules.values)
    for name in RESOLVED:
        if name not in theirs or (name == "attention_backend" and theirs[name] is None):
            continue
        in_config = values.get(f"{name}_in_config", values.get(name))
        if theirs[name] != in_config:
            values[name] = theirs[name]
    return replace(rules, source="installed", values=values)


# ---------------------------------------------------------------- coverage


def _coverage_json(covered: Coverage | None) -> dict[str, Any]:
    if covered is None:
        return {"full_decode_max": None, "operating_point": None, "uncovered_decode_batches": []}
    return {
        "full_decode_max": covered.full_decode_max,
        "operating_point": covered.operating_point,
        "uncovered_decode_batches": [list(pair) for pair in covered.uncovered_decode_batches],
    }


def _coverage_findings(covered: Coverage | None, resolved: Resolved, asked: Requested, gpu: Gpu, version: Version) -> list[Finding]:
    """The largest decode batches run outside FULL graphs although the command's graph mode has some.

    With vLLM's own limits for both this is what everybody gets, and matters with that many requests in flight only: an info.
    """
    full = "FULL" in str(resolved.values.get("cudagraph_mode")) and not resolved.values.get("enforce_eager")
    if covered is None or not full or not covered.uncovered_decode_batches:
        return []
    most, top = covered.full_decode_max, covered.operating_point
    request = capture_request(asked, resolved.values, version, gpu.platform, gpu.compute_capability)
    words = remedy(request) if request else None
    fewer = f"--max-num-seqs {max(1, most // (1 + speculative_tokens(asked, resolved.values)))}"
    fix = f"{words}, or {fewer}" if words else fewer
    if (asked.max_num_seqs, asked.sizes, asked.maximum, asked.speculative_method) == (None, None, None, None):
        message = f"by default decode batches above {most} tokens run outside FULL graphs, and {top} can come"
        return [Finding("info", "operating-point-not-covered", message, f"only for more than {most} requests at once: {fix}")]
    ranges = ", ".join(
        f"{low} to {high}" if low != high else str(low) for low, high in covered.uncovered_decode_batches
    )
    message = (
        f"decode batches of {ranges} tokens run outside FULL graphs: the largest FULL graph holds {most}, "
        f"the largest decode batch is {top}"
    )
    return [Finding("warning", "operating-point-not-covered", message, f"{fix}; {_MEASURED}")]


def version_finding(note: str | None, version: Version) -> tuple[Finding, ...]:
    """What is said where another release stands for the version asked for."""
    if note is None:
        return ()
    return (Finding("info", "version-not-read", note, f"--vllm-version {version_text(version)} asks for it by name"),)
