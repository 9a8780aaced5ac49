"""What vLLM makes of the compilation mode, the graph mode and eager mode that were asked for, per version.

Two steps, as in vLLM: `configured` is what its configuration holds before the model is loaded (`VllmConfig.__post_init__`),
`rewritten_mode` what the model runner makes of that once it knows the attention backend. Both were read in all releases of
versions.py; the second was the same function in all of 0.11.0 to 0.33.0, moved about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.engine.rules.backend_table import ALWAYS, NEVER, SINGLE_TOKEN, UNKNOWN, Version

NONE, PIECEWISE, FULL = "NONE", "PIECEWISE", "FULL"
FULL_DECODE_ONLY, FULL_AND_PIECEWISE = "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"
GRAPH_MODES = (NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE)
COMPILATION_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")  # by their number
COMPILED = "VLLM_COMPILE"
_PIECEWISE = (PIECEWISE, FULL_AND_PIECEWISE)
_DECODE_FULL = (FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE)
_WITHOUT_PIECEWISE = {PIECEWISE: NONE, FULL_AND_PIECEWISE: FULL_DECODE_ONLY}

# Graph mode of each -O level, from 0.12; the tables of O2 and O3 are equal in every release read.
LEVEL_GRAPHS: Mapping[int, str] = {0: NONE, 1: PIECEWISE, 2: FULL_AND_PIECEWISE, 3: FULL_AND_PIECEWISE}
DEFAULT_LEVEL = 2
LEVELS_SINCE = (0, 12, 0)


@dataclass(frozen=True)
class Era:
    """How the releases from `since` on treat the modes.

    eager: "graphs-off" leaves an explicit compilation mode, "level-0" sets -O0 and leaves it, "mode-none" overrides it.
    uncompiled: what becomes of a graph mode that does not go with a compilation mode other than VLLM_COMPILE: "refused"
    and "piecewise-to-none" and "strip-piecewise" concern the piecewise modes, "all-to-none" concerns every mode.
    """

    since: Version
    default_graphs: str | None  # None: from the -O level
    eager: str
    uncompiled: str
    mode_settable: bool = True  # False: without eager, compilation is on whatever is asked for


ERAS: tuple[Era, ...] = (
    Era((0, 9, 0), PIECEWISE, "graphs-off", "all-to-none", mode_settable=False),
    Era((0, 10, 2), PIECEWISE, "graphs-off", "refused"),
    Era((0, 11, 0), FULL_AND_PIECEWISE, "graphs-off", "refused"),
    Era((0, 12, 0), None, "level-0", "all-to-none"),
    Era((0, 13, 0), None, "level-0", "piecewise-to-none"),
    Era((0, 17, 1), None, "mode-none", "piecewise-to-none"),
    Era((0, 30, 0), None, "mode-none", "strip-piecewise"),
)


def era(version: Version) -> Era:
    return next(entry for entry in reversed(ERAS) if entry.since <= version)


@dataclass(frozen=True)
class Modes:
    """Modes and level, where each came from (default, level, flag, rewrite:RULE), and what was rewritten or refused."""

    level: int | None
    compilation: str
    graphs: str
    origins: Mapping[str, str]
    rewrites: tuple[tuple[str, str], ...] = ()  # (sentence, what to do instead)
    refusal: str | None = None
    split: bool = True  # False: a pass has taken the cuts at attention out of the compiled graph


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; None where it does not say. `no_compile` names what turns compilation off."""

    version: Version
    level: int | None = None
    compilation: str | None = None
    graphs: str | None = None
    eager: bool = False
    no_compile: str | None = None
    breakable: bool = False  # breakable graphs do the piecewise part without the compiler
    runner_v2: bool | None = False
    split: bool = True  # False: splitting_ops is an empty list


# ---------------------------------------------------------------- before the model is loaded


def configured(asked: Asked) -> Modes:
    """The modes in vLLM's configuration on a GPU."""
    rules = era(asked.version)
    with_levels = rules.default_graphs is None
    level = asked.level if asked.level is not None else DEFAULT_LEVEL if with_levels else None
    origins = {"optimization_level": "flag" if asked.level is not None else "default"}
    if asked.eager and rules.eager == "level-0" and level:
        level, origins["optimization_level"] = 0, "rewrite:eager-level-0"
    compilation, origins["compilation_mode"] = _compilation(asked, rules, level)
    graphs, origins["cudagraph_mode"] = _graphs(asked, rules, level, compilation)
    modes = Modes(level if with_levels else None, compilation, graphs, origins)
    if asked.eager:
        return _after(modes, NONE, "eager")
    for step in (_uncompiled, _unsplit, _stock_compile_v2):
        modes = step(modes, asked, rules)
        if modes.refusal:
            break
    return modes


def configured_on_cpu(asked: Asked) -> Modes:
    """On a CPU there are no graphs, and full compilation becomes a single trace with the inductor (read in 0.9.2 to 0.32.0)."""
    rules = era(asked.version)
    level = asked.level if asked.level is not None else DEFAULT_LEVEL if rules.default_graphs is None else None
    origins = {"optimization_level": "flag" if asked.level is not None else "default"}
    if asked.eager and rules.eager == "level-0" and level:
        level, origins["optimization_level"] = 0, "rewrite:eager-level-0"
    compilation, origins["compilation_mode"] = _compilation(asked, rules, level)
    graphs, origins["cudagraph_mode"] = _graphs(asked, rules, level, compilation)
    if not asked.eager and rules.uncompiled == "strip-piecewise":
        graphs_left = _uncompiled(Modes(level, compilation, graphs, origins), asked, rules)
        graphs, origins = graphs_left.graphs, dict(graphs_left.origins)
    if compilation == COMPILED:
        compilation, origins["compilation_mode"] = "DYNAMO_TRACE_ONCE", "rewrite:cpu"
    if graphs != NONE:
        origins["cudagraph_mode"] = "rewrite:cpu"
    return Modes(level if rules.default_graphs is None else None, compilation, NONE, origins)


def _compilation(asked: Asked, rules: Era, level: int | None) -> tuple[str, str]:
    if asked.eager and rules.eager == "mode-none":
        return NONE, "rewrite:eager"
    if not rules.mode_settable and not asked.eager:
        same = asked.compilation in (None, COMPILED)
        return COMPILED, ("flag" if asked.compilation else "default") if same else "rewrite:always-compiled"
    if asked.no_compile:
        return NONE, f"rewrite:{asked.no_compile}"
    if asked.compilation is not None:
        return asked.compilation, "flag"
    if asked.eager:
        return NONE, "rewrite:eager"
    if level == 0:
        return NONE, "level"
    return COMPILED, "default" if asked.level is None else "level"


def _graphs(asked: Asked, rules: Era, level: int | None, compilation: str) -> tuple[str, str]:
    if asked.graphs is not None:
        return asked.graphs, "flag"
    if rules.default_graphs is None:
        return LEVEL_GRAPHS.get(level or 0, FULL_AND_PIECEWISE), "default" if asked.level is None else "level"
    return (rules.default_graphs if compilation == COMPILED else NONE), "default"


def _uncompiled(modes: Modes, asked: Asked, rules: Era) -> Modes:
    if modes.compilation == COMPILED or modes.graphs == NONE or asked.breakable:
        return modes
    piecewise = modes.graphs in _PIECEWISE
    if rules.uncompiled == "all-to-none":
        return _after(modes, NONE, "graphs-need-compilation")
    if not piecewise:
        return modes
    if rules.uncompiled == "refused":
        why = f"{modes.graphs} graphs need compilation mode VLLM_COMPILE, not {modes.compilation}"
        return Modes(modes.level, modes.compilation, modes.graphs, modes.origins, modes.rewrites, why)
    mode = _WITHOUT_PIECEWISE[modes.graphs] if rules.uncompiled == "strip-piecewise" else NONE
    return _after(modes, mode, "piecewise-needs-compilation")


def _unsplit(modes: Modes, asked: Asked, rules: Era) -> Modes:  # noqa: ARG001 - all steps take the same arguments
    if asked.split or modes.compilation != COMPILED:
        return modes
    if asked.version < (0, 11, 2):
        return _after(modes, FULL, "no-splitting") if modes.graphs == PIECEWISE else modes
    if modes.graphs in _PIECEWISE:
        return _after(modes, NONE if modes.graphs == PIECEWISE else FULL, "no-splitting")
    return modes


def _stock_compile_v2(modes: Modes, asked: Asked, rules: Era) -> Modes:  # noqa: ARG001
    stock = modes.compilation == "STOCK_TORCH_COMPILE"
    if stock and asked.runner_v2 and asked.version >= (0, 32) and modes.graphs != NONE:
        return _after(modes, NONE, "stock-compile-without-graphs")
    return modes


# Rule -> (why, what to do instead).
_WHY = {
    "eager": ("eager mode captures no graphs", "drop --enforce-eager"),
    "graphs-need-compilation": (
        "this version captures graphs only with compilation mode VLLM_COMPILE",
        "leave the compilation mode alone, or use 0.13 or newer",
    ),
    "piecewise-needs-compilation": (
        "piecewise graphs need compilation mode VLLM_COMPILE",
        "leave the compilation mode alone, or ask for cudagraph_mode FULL or FULL_DECODE_ONLY",
    ),
    "no-splitting": ("splitting_ops is empty, so there are no pieces", "leave splitting_ops alone"),
    "stock-compile-without-graphs": (
        "model runner V2 captures no graphs around stock torch.compile",
        "use compilation mode VLLM_COMPILE",
    ),
}


def _after(modes: Modes, graphs: str, rule: str) -> Modes:
    """`modes` with another graph mode and a sentence about it; eager mode is the person's own wish and needs none."""
    if graphs == modes.graphs:
        return modes
    origins = {**modes.origins, "cudagraph_mode": f"rewrite:{rule}"}
    why, instead = _WHY[rule]
    said = () if rule == "eager" else ((f"{modes.graphs} becomes {graphs}: {why}", instead),)
    return Modes(modes.level, modes.compilation, graphs, origins, (*modes.rewrites, *said))


# ---------------------------------------------------------------- once the backend is known


@dataclass(frozen=True)
class Rewrite:
    """Graph mode that will run, the reason where it is not the one given, or the refusal."""

    mode: str
    reason: str | None = None
    refused: bool = False


def rewritten_mode(
    mode: str,
    support: str,
    version: Version,
    compiled: bool = True,
    speculative: bool = False,
    split: bool = True,
    backend: str = "this backend",
) -> Rewrite:
    """What the model runner makes of a configured graph mode, for a backend whose graphs hold `support`.

    `compiled`: compilation mode is VLLM_COMPILE; `split`: attention is among the splitting operations then. With support
    UNKNOWN nothing is concluded. Model runner V1 and V2 share this step.
    """
    if mode in (NONE, PIECEWISE) or support == UNKNOWN:
        return Rewrite(mode)
    if version < (0, 10, 2):
        return _before_graph_modes(mode, support, backend)
    pieces = compiled and split
    current, reasons = mode, []
    if current == FULL and support != ALWAYS:
        if support == NEVER:
            return Rewrite(mode, f"{backend} cannot be captured in full graphs", refused=True)
        current = FULL_AND_PIECEWISE if pieces else FULL_DECODE_ONLY
        reasons.append(f"{backend} cannot put mixed batches into full graphs ({support})")
    if current in _DECODE_FULL and support == NEVER:
        if version < (0, 11, 0):
            return Rewrite(mode, f"{backend} cannot be captured in full graphs", refused=True)
        current = PIECEWISE if pieces else NONE
        reasons.append(f"{backend} cannot be captured in full graphs")
    if current in _DECODE_FULL and speculative and support == SINGLE_TOKEN:
        current = PIECEWISE if pieces else NONE
        reasons.append(f"{backend} captures one token a sequence only, speculative decoding needs more")
    return Rewrite(current, "; ".join(reasons) or None)


def _before_graph_modes(mode: str, support: str, backend: str) -> Rewrite:
    """0.9.0 to 0.10.0: `full_cuda_graph` or nothing, and a backend that cannot is refused."""
    if mode == FULL and support != ALWAYS:
        return Rewrite(mode, f"{backend} cannot be captured in full graphs", refused=True)
    return Rewrite(mode)
