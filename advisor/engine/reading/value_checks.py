"""What argparse refuses about values, and environment variables that a version does not know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from advisor.engine.options import COMPILATION
from advisor.engine.reading.option_tables import env_status
from advisor.engine.reading.option_values import wanted
from advisor.engine.versions import seen_in, version_text
from advisor.records import Finding

Version = tuple[int, ...]

ENV_CHECKED_SINCE = (0, 17, 1)  # vLLM warns about VLLM_ variables that it does not know
_SIZE_FLAGS = {
    "--cudagraph-capture-sizes": "cudagraph_capture_sizes",
    "--max-cudagraph-capture-size": "max_cudagraph_capture_size",
    "--cuda-graph-sizes": "cudagraph_capture_sizes",
}
_SIZE_LISTS = ("--cudagraph-capture-sizes", "--cuda-graph-sizes")
_NOT_CHECKED = re.compile(r"VLLM_(NO_USAGE_STATS|DO_NOT_TRACK|USAGE_|CI_|TEST_|PORT_|SERVICE_)")


def refused_values(options: dict[str, Any], version: Version) -> list[Finding]:
    """What argparse refuses about values. A value that it refuses is taken out, so that nothing is derived from it."""
    findings: list[Finding] = []
    for option, value in list(options.items()):
        values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        complaints = [(str(item), complaint) for item in values if (complaint := wanted(option, str(item), version))]
        if complaints:
            findings.append(_invalid(option, *complaints[0], version))
            del options[option]
        elif option in _SIZE_LISTS:
            options[option] = [int(item) for item in values]
    compilation = options.get(COMPILATION)
    maximum = compilation.get("max_cudagraph_capture_size") if isinstance(compilation, Mapping) else None
    if maximum is not None and not re.fullmatch(r"-?\d+", str(maximum)):
        findings.append(
            _invalid(f"max_cudagraph_capture_size of {COMPILATION}", str(maximum), "a whole number", version)
        )
        options[COMPILATION] = {key: value for key, value in compilation.items() if key != "max_cudagraph_capture_size"}
    for flag, key in _SIZE_FLAGS.items():
        exclusive = flag != "--cuda-graph-sizes" or version >= (0, 11, 2)
        if exclusive and flag in options and isinstance(compilation, Mapping) and compilation.get(key) is not None:
            message = f"{flag} and the key {key} of {COMPILATION} are both given: vLLM refuses that"
            findings.append(Finding("error", "capture-size-set-twice", message, "give one of them"))
    return findings


def _invalid(option: str, text: str, complaint: str, version: Version) -> Finding:
    if "," in text and option in _SIZE_LISTS:
        message = f"{option} {text}: sizes are separated by spaces, vLLM {version_text(version)} refuses commas"
        return Finding("error", "capture-sizes-comma-separated", message, f"{option} {' '.join(text.split(','))}")
    message = f"{option} takes {complaint}: vLLM {version_text(version)} refuses {text!r}"
    return Finding("error", "value-invalid", message, f"{option} with {complaint}")


def without_effect(options: Mapping[str, Any], version: Version) -> list[Finding]:
    """Options that a version still takes, and that do something else than they did, or nothing."""
    findings: list[Finding] = []
    this = version_text(version)
    if "--cuda-graph-sizes" in options and (0, 11, 2) <= version < (0, 13):
        message = (
            f"--cuda-graph-sizes is deprecated in vLLM {this}, where even one number is the list, and gone from 0.13"
        )
        fix = "--cudagraph-capture-sizes for a list, --max-cudagraph-capture-size for its largest size"
        findings.append(Finding("warning", "option-renamed", message, fix))
    if "--disable-cascade-attn" in options and version >= (0, 32):
        severity = "info" if options["--disable-cascade-attn"] is True else "warning"
        message = f"vLLM {this} has no cascade attention any more: --disable-cascade-attn and --no-disable-cascade-attn do nothing"
        findings.append(Finding(severity, "cascade-removed", message, "leave it out"))
    return findings


def unknown_variables(env: Mapping[str, str], version: Version) -> list[Finding]:
    findings: list[Finding] = []
    for name, value in env.items():
        if not name.startswith("VLLM_") or name == "VLLM_ATTENTION_BACKEND" or _NOT_CHECKED.match(name):
            continue
        status = env_status(name, version)
        if status.exists:
            continue
        when = {"removed": "is gone since", "added": "comes with"}.get(status.state)
        said = f"{when} {seen_in(status.changed or ())}" if when else "is in no release that was read"
        warns = ", with a warning" if version >= ENV_CHECKED_SINCE else " without a word"
        message = f"{name}={value} {said}: vLLM {version_text(version)} ignores it{warns}"
        findings.append(Finding("warning", "env-unknown", message, "leave it out"))
    return findings
