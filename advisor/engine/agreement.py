"""Does what the server's log says agree with what was asked for?"""

from __future__ import annotations

from advisor.records import Active, Candidate


def disagreement(candidate: Candidate, active: Active) -> str | None:
    """The first setting that is active otherwise than requested, or None. What the log does not say is no disagreement."""
    wanted = candidate.settings
    backend = wanted.get("attention_backend")
    if backend and active.attention_backends and backend not in active.attention_backends:
        return f"attention backend {backend} was asked for, {', '.join(active.attention_backends)} runs"
    for name, running in (
        ("enforce_eager", active.enforce_eager),
        ("compilation_mode", active.compilation_mode),
        ("cudagraph_mode", active.cudagraph_mode),
    ):
        if name in wanted and running is not None and wanted[name] != running:
            return f"{name}={wanted[name]} was asked for, {running} runs"
    sizes = wanted.get("cudagraph_capture_sizes")
    if sizes and active.capture_sizes is not None and list(sizes) != sorted(active.capture_sizes):
        return f"{len(sizes)} capture sizes were asked for, the server captured {len(active.capture_sizes)} others"
    return None
