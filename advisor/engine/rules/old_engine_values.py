"""What the V0 engine of 0.9.0 to 0.10.2 makes of a command: its batch, its backend, its modes. The list is in capture/sizes.py.

Read in `EngineArgs._set_default_args_v0`, `SchedulerConfig.__post_init__`, `VllmConfig.__post_init__`, `get_attn_backend_cls` of
the CUDA platform and `worker/model_runner.py`. Its runner captures whole decode graphs by itself, compiled or not, and looks at
neither `cudagraph_mode` nor `use_cudagraph`; FULL_DECODE_ONLY is the later name of what they are.
"""

from __future__ import annotations

from dataclasses import replace

from advisor.engine.rules.backend_choice import Choice, Surroundings
from advisor.engine.rules.batch_defaults import BatchLimits
from advisor.engine.rules.graph_modes import FULL_DECODE_ONLY, NONE, Modes
from advisor.engine.rules.graph_support import flash_attention_version
from advisor.engine.rules.old_engine import Command
from advisor.records import ModelFacts

SEQS, TOKENS, LONG = 256, 2048, 32768
_POOLING_TOKENS = 32768
_HEADS = (32, 64, 96, 128, 160, 192, 224, 256)
RULE = "rewrite:old-engine"


def old_limits(command: Command, length: int | None) -> BatchLimits:
    """`length` is max_model_len, None where unknown: then it is taken for a long one, which is what makes prefill chunked."""
    asked = command.asked
    seqs = asked.max_num_seqs or SEQS
    tokens = asked.max_num_batched_tokens or _tokens(command, seqs, length)
    refusal = f"max_num_batched_tokens {tokens} is below max_num_seqs {seqs}" if tokens is not None and tokens < seqs else None
    seqs_origin, tokens_origin = ("flag" if given else RULE for given in (asked.max_num_seqs, asked.max_num_batched_tokens))
    return BatchLimits(seqs, tokens, seqs_origin, tokens_origin, refusal)


def _tokens(command: Command, seqs: int, length: int | None) -> int | None:
    chunked = chunks_prefill(command, length)
    steps = str(command.options.get("--num-scheduler-steps", 1))
    if length is None and (not chunked or steps != "1"):
        return None
    tokens = TOKENS if chunked and steps == "1" else max(length or 0, TOKENS)
    if command.spread.pooling:
        tokens = max(tokens, _POOLING_TOKENS)
    return tokens if length is None else min(tokens, seqs * length)


def chunks_prefill(command: Command, length: int | None) -> bool:
    """By default only for long contexts, and not beside what V0 cannot chunk. Multimodal models are not told apart here."""
    if command.asked.chunked_prefill is not None:
        return command.asked.chunked_prefill
    long = length is None or length > LONG
    model = command.model
    against = (
        (model is not None and model.mla)
        or command.asked.speculative_method is not None
        or any(command.options.get(name) is True for name in ("--enable-lora", "--enable-prompt-adapter"))
        or (command.spread.pooling and command.version < (0, 10, 2))
    )
    return long and not against


def old_backend(choice: Choice, around: Surroundings, model: ModelFacts | None, flash: int | None) -> Choice:
    """FLASH_ATTN, or XFORMERS where that cannot be. A backend of MLA models and a named one are left as they are."""
    if choice.name not in (None, "FLASH_ATTN") or (model is not None and model.mla):
        return choice
    version = flash_attention_version(around.version, around.compute_capability, flash)
    fp8 = str(around.kv_cache_dtype).startswith("fp8")
    reasons = (
        around.compute_capability < (8, 0),
        around.dtype not in ("half", "float16", "bfloat16"),
        (around.block_size or 16) % 16 != 0,
        around.head_size is not None and around.head_size not in _HEADS,
        fp8 and not (version == 3 and around.compute_capability[0] == 9),
    )
    if any(reasons):
        return replace(choice, name="XFORMERS", origin=RULE)
    return replace(choice, name="FLASH_ATTN")


def old_modes(command: Command) -> Modes:
    """V0 compiles only what it is told to, eager mode or not, and never beside LoRA or weights offloaded to the CPU."""
    asked = command.asked
    offload = str(command.options.get("--cpu-offload-gb", 0))
    apart = command.options.get("--enable-lora") is True or offload not in ("0", "0.0")
    given = asked.compilation not in (None, NONE)
    compilation = NONE if apart else asked.compilation or NONE
    origin = RULE if asked.compilation is None or (apart and given) else "flag"
    origins = {
        "optimization_level": "default",
        "compilation_mode": origin,
        "cudagraph_mode": "rewrite:eager" if asked.eager else RULE,
    }
    return Modes(None, compilation, NONE if asked.eager else FULL_DECODE_ONLY, origins)


def told(command: Command, modes: Modes) -> list[str]:
    """What is assumed, or not known, about the modes of V0."""
    asked, found = command.asked, []
    if asked.max_model_len is None and command.model is None and asked.chunked_prefill is None:
        found.append(f"More than {LONG} tokens of context are assumed, for which the V0 engine chunks prefill by default.")
    if not asked.eager:
        longest = command.options.get("--max-seq-len-to-capture", 8192)
        found.append(
            f"The V0 engine's own decode graphs are called FULL_DECODE_ONLY here; they run while no sequence is longer than "
            f"{longest} tokens (--max-seq-len-to-capture), and prefill runs without graphs."
        )
    if modes.compilation != NONE:
        found.append("What graphs the V0 engine captures inside compiled code, beside its own, is not in the rules.")
    if asked.graphs is not None:
        found.append(f"The V0 engine's runner does not look at the graph mode; what {asked.graphs} changes elsewhere is not known.")
    return found
