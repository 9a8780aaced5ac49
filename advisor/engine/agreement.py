"""Does what the server says that it runs agree with what was asked for? Pure.

`judge` is the whole answer for a launch; what it is made of can be asked singly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.foretold import foretell
from advisor.engine.graph_steps import FLAG, StepsVerdict, judge_steps, mode_shares, silence
from advisor.engine.options import ServeOptions, parse_options
from advisor.engine.rules.backend_choice import asked_backend
from advisor.engine.rules.requested import read_request
from advisor.engine.versions import known_version
from advisor.records import Active, Candidate, Command, Facts

# Of a resolved configuration, what a trial keeps.
KEPT = (
    "optimization_level", "compilation_mode", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
    "attention_backend", "enforce_eager", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size",
    "kv_cache_dtype", "dtype", "enable_prefix_caching", "async_scheduling", "fingerprint",
)  # fmt: skip
# Flags of the KV cache whose active value a server tells.
_CACHE_FLAGS = ("--block-size", "--kv-cache-dtype", "--enable-prefix-caching", "--gpu-memory-utilization")
_WORDS_BEFORE_OPTIONS = 5  # of a command: python -m vllm.entrypoints.cli.main serve MODEL


@dataclass(frozen=True)
class Agreement:
    """What a launch's own words mean for its trial."""

    active: Active  # completed by what follows from the counted steps
    wrong: str | None  # the first setting of the candidate that is active otherwise than requested
    credited_to: Candidate | None  # then: the candidate that describes what ran
    notes: tuple[str, ...]  # other differences, which are no fault of the candidate


def judge(
    candidate: Candidate,
    command: Command,
    resolved: Mapping[str, Any],
    active: Active,
    default: Active,
    facts: Facts,
    in_flight: int | None = None,
) -> Agreement:
    """Compare the requested, resolved and active state of a launch.

    `command` is the whole one, with the person's own arguments; a difference in these is a note, because every launch of the
    study has them. `default` is what the baseline said; `in_flight` the requests that the load keeps running at most.
    """
    options = parse_options(command.argv[_WORDS_BEFORE_OPTIONS:])
    steps, active, silent = _steps(candidate, options, command.env, resolved, active, facts, in_flight)
    wrong = disagreement(candidate, active) or steps.wrong
    ran = replace(active, cudagraph_mode=steps.ran) if steps.ran else active
    return Agreement(
        active=active,
        wrong=wrong,
        credited_to=as_active(candidate, ran, default) if wrong else None,
        notes=(
            *own_arguments_otherwise(candidate, options, command.env, active, facts.engine.vllm_version),
            *rewritten_at_start(resolved, active),
            *steps.notes,
            *silent,
        ),
    )


def _steps(
    candidate: Candidate,
    options: ServeOptions,
    env: Mapping[str, str],
    resolved: Mapping[str, Any],
    active: Active,
    facts: Facts,
    in_flight: int | None,
) -> tuple[StepsVerdict, Active, tuple[str, ...]]:
    """(what the counted steps say, the active state with their shares, why there are none)."""
    if not active.graph_steps:
        asked = options.values.get(FLAG) is True and facts.engine.platform != "cpu"
        version, _ = known_version(facts.engine.vllm_version)
        return StepsVerdict(), active, (silence(version, active.model_runner),) if asked else ()
    foretold = foretell(options, env, facts, resolved, active)
    requests = min(n for n in (in_flight, foretold.max_num_seqs, 10**6) if n is not None)
    largest = requests * foretold.query_length
    shares = mode_shares([step for step in active.graph_steps if step.tokens <= largest])
    wanted = candidate.settings.get("cudagraph_mode")
    verdict = judge_steps(wanted, active.cudagraph_mode, active.graph_steps, foretold.coverage, largest)
    return verdict, replace(active, decode_modes=shares or None), ()


# ---------------------------------------------------------------- requested against active


def running(active: Active) -> dict[str, Any]:
    """Setting -> the value that runs, under the names that candidates have; None: the server does not say."""
    return {
        "attention_backend": (active.attention_backends or (None,))[0],
        "enforce_eager": active.enforce_eager,
        "compilation_mode": active.compilation_mode,
        "cudagraph_mode": active.cudagraph_mode,
        "cudagraph_capture_sizes": list(active.capture_sizes) if active.capture_sizes is not None else None,
        "--block-size": active.block_size,
        "--kv-cache-dtype": active.kv_cache_dtype,
        "--enable-prefix-caching": active.prefix_caching,
        "--gpu-memory-utilization": active.gpu_memory_utilization,
    }


def differences(settings: Mapping[str, Any], active: Active) -> Iterator[tuple[str, str]]:
    """(setting, sentence) for each one that is active otherwise than `settings` ask for; what nobody says is no difference."""
    for name, now in running(active).items():
        wanted = settings.get(name)
        if wanted is None or now is None or _same(name, wanted, now, active):
            continue
        if name == "attention_backend":
            yield name, f"attention backend {wanted} was asked for, {', '.join(active.attention_backends)} runs"
        elif name == "cudagraph_capture_sizes":
            captured = f"the server captured {len(now)} others" if now else "the server captures none"
            yield name, f"{len(wanted)} capture sizes were asked for, {captured}"
        else:
            words = f"{name} {wanted}" if name.startswith("--") else f"{name}={wanted}"
            yield name, f"{words} was asked for, {now} runs"


def _same(name: str, wanted: Any, now: Any, active: Active) -> bool:
    if name == "attention_backend":
        return wanted in active.attention_backends
    if name == "cudagraph_capture_sizes":
        return not wanted or sorted(wanted) == sorted(now)
    if name == "--kv-cache-dtype":
        return _same_cache_dtype(str(wanted), str(now))
    if name in ("--block-size", "--gpu-memory-utilization"):
        return _number(wanted) in (None, float(now))
    return wanted == now


def _same_cache_dtype(wanted: str, now: str) -> bool:
    """`auto` leaves the choice to vLLM, `fp8` that of the format; an active `auto` is the model's own half precision."""
    half = ("bfloat16", "float16")
    return (
        wanted in ("auto", now)
        or (wanted == "fp8" and now.startswith("fp8"))
        or ((wanted, now) == ("fp8_e4m3", "fp8") or (wanted in half and now == "auto"))
    )


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def disagreement(candidate: Candidate, active: Active) -> str | None:
    """The first setting of the candidate that is active otherwise than requested, or None."""
    return next((sentence for _, sentence in differences(candidate.settings, active)), None)


def own_arguments_otherwise(
    candidate: Candidate, options: ServeOptions, env: Mapping[str, str], active: Active, version: str
) -> tuple[str, ...]:
    """What the command asks for beside the candidate's settings, and something else runs."""
    known, _ = known_version(version)
    asked = read_request(options, env, known)
    settings = {
        "attention_backend": asked_backend(options, env, known).name,
        "enforce_eager": asked.eager or None,
        "compilation_mode": asked.compilation,
        "cudagraph_mode": asked.graphs,
        "cudagraph_capture_sizes": asked.sizes,
        **{flag: options.values[flag] for flag in _CACHE_FLAGS if flag in options.values},
    }
    return tuple(said for name, said in differences(settings, active) if name not in candidate.settings)


def as_active(candidate: Candidate, active: Active, default: Active) -> Candidate:
    """The candidate that describes what ran: settings that are active otherwise than asked get their active value.

    `default` is what the baseline said: a value equal to it is no override and is left out.
    """
    now, usual = running(active), running(default)
    settings = dict(candidate.settings)
    for name in now.keys() & settings.keys():
        if now[name] is None or _equal(name, settings[name], now[name]):
            continue
        if now[name] == usual[name]:
            del settings[name]
        else:
            settings[name] = now[name]
    return Candidate(settings)


def _equal(name: str, wanted: Any, now: Any) -> bool:
    """As `_same`, but a backend that runs beside others counts as what the first of them is."""
    return wanted == now if name == "attention_backend" else _same(name, wanted, now, Active())


# ---------------------------------------------------------------- resolved against active


def rewritten_at_start(resolved: Mapping[str, Any], active: Active) -> tuple[str, ...]:
    """What vLLM changed after it had resolved the command, once it knew the attention backend and the model: one line each."""
    pairs = (
        ("attention backend", resolved.get("attention_backend"), ", ".join(active.attention_backends) or None),
        ("compilation_mode", resolved.get("compilation_mode"), active.compilation_mode),
        ("cudagraph_mode", resolved.get("cudagraph_mode"), active.cudagraph_mode),
        ("block_size", resolved.get("block_size"), active.block_size),
        ("kv_cache_dtype", resolved.get("kv_cache_dtype"), active.kv_cache_dtype),
        ("enable_prefix_caching", resolved.get("enable_prefix_caching"), active.prefix_caching),
    )
    changed = [
        f"{name}: resolved {before}, active {now}"
        for name, before, now in pairs
        if before is not None and now is not None and before != now
    ]
    before, now = resolved.get("cudagraph_capture_sizes"), active.capture_sizes
    if before and now is not None and sorted(before) != sorted(now):
        changed.append(f"cudagraph_capture_sizes: resolved {len(before)}, active {len(now)}")
    return tuple(changed)
