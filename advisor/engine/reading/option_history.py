"""What to write instead of an option that a version does not have. Read in the deprecation notes and sources of the releases."""

from __future__ import annotations

from advisor.engine.reading.option_tables import OptionStatus
from advisor.engine.reading.pasted_words import Word
from advisor.engine.versions import seen_in, version_text
from advisor.records import Finding

Version = tuple[int, ...]

# Option -> (first version in which the advice holds, advice). The last entry that holds wins.
INSTEAD: dict[str, tuple[tuple[Version, str], ...]] = {
    "--cuda-graph-sizes": (((0, 11, 2), "--cudagraph-capture-sizes N N ..., or --max-cudagraph-capture-size N for one number"),),
    "--cudagraph-capture-sizes": (((0, 9, 0), "--cuda-graph-sizes N N ..., or the key cudagraph_capture_sizes"),),
    "--max-cudagraph-capture-size": (((0, 9, 0), "--cuda-graph-sizes N"),),
    "--cudagraph-mode": (((0, 9, 0), "--compilation-config.cudagraph_mode MODE"), ((0, 12, 0), "-cc.cudagraph_mode=MODE")),
    "--attention-backend": (((0, 9, 0), "the environment variable VLLM_ATTENTION_BACKEND"),),
    "-ac": (((0, 9, 0), "environment variables: --attention-config comes with 0.13"),),
    "--attention-config": (((0, 9, 0), "environment variables: --attention-config comes with 0.13"),),
    "-cc": (((0, 9, 0), "--compilation-config"),),
    "-O": (((0, 12, 0), "-O0 to -O3 for a level, -cc '{...}' for JSON"),),
    "--optimization-level": (((0, 9, 0), "-O3, which sets the compilation level before 0.12"),),
    "--max-seq-len-to-capture": (((0, 11, 0), "leave it out: graphs no longer depend on the sequence length"),),
    "--disable-log-requests": (((0, 10, 0), "leave it out: requests are logged only with --enable-log-requests"),),
    "--task": (((0, 10, 0), "--runner pooling, with --convert where the model needs it"),),
    "--swap-space": (((0, 9, 0), "leave it out: there is no swapping any more"),),
    "--num-scheduler-steps": (((0, 9, 0), "leave it out: the V1 engine has no multi-step scheduling"),),
    "--use-v2-block-manager": (((0, 9, 0), "leave it out: it had no effect"),),
    "--enable-reasoning": (((0, 9, 0), "--reasoning-parser alone"),),
    "--guided-decoding-backend": (((0, 11, 0), "--structured-outputs-config.backend NAME"),),
    "--rope-scaling": (((0, 9, 0), "--hf-overrides '{\"rope_parameters\": {...}}'"),),
    "--disable-async-output-proc": (((0, 9, 0), "leave it out"),),
    "--disable-custom-all-reduce-kernel": (((0, 9, 0), "--disable-custom-all-reduce"),),
    "--cc": (((0, 12, 0), "-cc with one dash, or --compilation-config"),),
}  # fmt: skip


def instead_of(name: str, version: Version) -> str | None:
    """What to write instead of an option in a version that lacks it."""
    holding = [advice for since, advice in INSTEAD.get(name, ()) if since <= version]
    return holding[-1] if holding else None


def explain_missing(name: str, word: Word, status: OptionStatus, version: Version, near: str | None) -> Finding:
    """The finding for an option that does not exist in this version: removed, renamed, not yet there, or never there."""
    this = version_text(version)
    where = f"{name} at {word.place}"
    advice = instead_of(name, version)
    if status.state == "renamed" and status.changed:
        message = f"{where}: renamed in vLLM {seen_in(status.changed)}, {this} refuses the old name"
        return Finding("error", "option-renamed", message, advice or str(status.renamed_to))
    if status.state == "removed" and status.changed:
        message = f"{where}: gone since vLLM {seen_in(status.changed)}, {this} refuses it"
        return Finding("error", "option-removed", message, advice or "leave it out")
    if status.state == "added" and status.changed:
        message = f"{where}: comes with vLLM {seen_in(status.changed)}, {this} refuses it"
        return Finding("error", "option-unknown", message, advice or "leave it out, or use a newer vLLM")
    message = f"{where}: no release that was read has it, vLLM {this} refuses it"
    return Finding("error", "option-unknown", message, advice or (f"did you mean {near}?" if near else "leave it out"))
