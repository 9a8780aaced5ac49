"""Says what the installed vLLM is and what it makes of a model. Runs in the target interpreter, imports none of ours.

JSON lines, standard input to standard output, until the input ends:
    {"model": folder or hub id, "argv": [further words of `vllm serve`]}
 -> {"ok": true, "python", "python_version", "vllm_version", "torch_version", "cuda_version", "flashinfer_version",
     "import_s": 21.4, "build", "platform", "flags": [...], "max_model_len": 4096, "backends": [{"name", "reasons"}],
     "backends_error": null, "refused_arguments": null, "flash_attention_refusals": {"4": "reason"}}
 or {"ok": false, "error_type": "no_vllm" | "broken_vllm", "error": "one line"}

`backends` is null, and `backends_error` says why, where this vLLM has no selector that can be asked or where it refuses
the model; `refused_arguments` is its parser's complaint. The rest of the description stands. No CUDA context is made:
capabilities come from NVML, as in vLLM's own start.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import platform
import re
import sys
import time

# Members of vLLM's registry that are no backend of a language model's attention layers.
NOT_SELECTABLE = {"TORCH_SDPA", "NO_ATTENTION", "CUSTOM"}
# What vllm_flash_attn/cute imports (0.26 to 0.33): the packages nvidia-cutlass-dsl and quack-kernels.
FLASH_4_PACKAGES = ("cutlass", "quack")
# Models whose layers hand attention sinks to the selector; whether one does is written in its code, not in its config.
SINK_MODELS = {"GptOssForCausalLM"}


class Refusal(Exception):
    """An answer of `"ok": false`: its error type and one line."""

    def __init__(self, error_type: str, error: str):
        super().__init__(error)
        self.error_type = error_type


def main() -> None:
    """Answer requests until standard input ends."""
    requests, answers = open_channel()
    for line in requests:
        answers.write(json.dumps(respond(json.loads(line))) + "\n")
        answers.flush()


def open_channel():
    """The protocol's own streams: vLLM logs to descriptor 1 and its children inherit both, so 0 and 1 move."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


def respond(request: dict) -> dict:
    """One answer."""
    argv = [request["model"], *(str(token) for token in request.get("argv", []))]
    begun = time.monotonic()
    try:
        if importlib.util.find_spec("vllm") is None:
            raise Refusal("no_vllm", f"{sys.executable} has no vLLM")
        answer = versions()
        command, parser, serve = serve_parser()
        imported_s = round(time.monotonic() - begun, 3)
    except Refusal as refusal:
        return {"ok": False, "error_type": refusal.error_type, "error": str(refusal)}
    return {"ok": True, **answer, "import_s": imported_s, "flags": long_flags(serve), **asked_backends(command, parser, argv)}


# ---------------------------------------------------------------- engine


def versions() -> dict:
    """Versions of what decides the speed, and the platform that this vLLM chooses here."""
    try:
        import torch
        import vllm
        from vllm.platforms import current_platform
    except Exception as error:  # a missing library, a wheel for another torch: whatever an import can raise
        raise Refusal("broken_vllm", f"vLLM cannot be imported: {type(error).__name__}: {one_line(error)}") from None
    build = "cuda" if torch.version.cuda else "rocm" if torch.version.hip else "cpu"
    return {
        "python": sys.executable,
        "python_version": platform.python_version(),
        "vllm_version": vllm.__version__.split("+")[0],
        "torch_version": torch.__version__,
        "cuda_version": torch.version.cuda,
        "flashinfer_version": installed("flashinfer-python"),
        "build": build,
        "platform": current_platform._enum.name.lower(),
    }


def installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def serve_parser():
    """The `serve` subcommand, a parser that holds it, and its own parser."""
    try:
        from vllm.entrypoints.cli.serve import cmd_init

        parser = first_module("vllm.utils.argparse_utils", "vllm.utils").FlexibleArgumentParser()
        command = cmd_init()[0]
        serve = command.subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    except Exception as error:
        raise Refusal("broken_vllm", f"vLLM's own parser fails: {type(error).__name__}: {one_line(error)}") from None
    return command, parser, serve


def first_module(*names: str):
    """The first of these modules that this vLLM has: it has moved its helpers about."""
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise ImportError(f"this vLLM has none of {', '.join(names)}")


def long_flags(serve) -> list:
    """Long option names of `vllm serve`, sorted, `--no-x` of a switch among them."""
    names = {name for action in serve._actions for name in action.option_strings}
    return sorted(name for name in names if name.startswith("--"))


# ---------------------------------------------------------------- attention backends


def asked_backends(command, parser, argv: list) -> dict:
    """What depends on model and arguments: `backends`, valid ones first in vLLM's order of preference, and the length."""
    answer = {
        "max_model_len": None, "backends": None, "backends_error": None, "refused_arguments": None,
        "flash_attention_refusals": {},
    }  # fmt: skip
    said = io.StringIO()  # argparse explains itself on standard error before it exits
    try:
        with contextlib.redirect_stderr(said):
            config = engine_config(command, parser, argv)
        answer["max_model_len"] = config.model_config.max_model_len
        answer["backends"] = backends(config)
        answer["flash_attention_refusals"] = flash_attention_refusals()
    except SystemExit:
        answer["refused_arguments"] = one_line(said.getvalue().rsplit(": error: ", 1)[-1])
    except Exception as error:
        answer["backends_error"] = f"{type(error).__name__}: {one_line(error)}"
    return answer


def engine_config(command, parser, argv: list):
    """The VllmConfig that `vllm serve ARGV` would build."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    args = parser.parse_args(["serve", *argv])
    command.validate(args)
    args.model = getattr(args, "model_tag", None) or args.model
    return AsyncEngineArgs.from_cli_args(args).create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def backends(config) -> list:
    """[{"name", "reasons"}]: on CUDA from the list that vLLM's selector goes through, elsewhere by asking for each."""
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform

    registry = first_module("vllm.v1.attention.backends.registry", "vllm.attention.backends.registry")
    members = [m for name, m in registry.AttentionBackendEnum.__members__.items() if name not in NOT_SELECTABLE]
    heads = config.model_config.get_num_attention_heads(config.parallel_config)
    ask = listed_by_platform if current_platform.is_cuda() else asked_one_by_one
    with set_current_vllm_config(config):
        answers = [ask(current_platform, members, layer, heads) for layer in selector_configs(config)]
    return merged(answers)


def flash_attention_refusals() -> dict:
    """Why versions of FlashAttention cannot run here, as vLLM's own interface says (CUDA, 0.17.1 on; empty elsewhere).

    Version 4 is compiled when it first runs, with packages that nothing else needs; vLLM looks for its own file only.
    """
    found: dict = {}
    with contextlib.suppress(Exception):  # another layout, another signature: nothing is known then
        interface = importlib.import_module("vllm.vllm_flash_attn.flash_attn_interface")
        for version in (2, 3, 4):
            if not interface.is_fa_version_supported(version):
                found[str(version)] = str(interface.fa_version_unsupported_reason(version))
        missing = [name for name in FLASH_4_PACKAGES if importlib.util.find_spec(name) is None]
        if missing and "4" not in found:
            found["4"] = f"FA4 needs the Python package {missing[0]}, which is not installed"
    return found


def selector_configs(config) -> list:
    """One AttentionSelectorConfig for each kind of layer of the model, with the fields that this vLLM knows."""
    selector = first_module("vllm.v1.attention.selector", "vllm.attention.selector").AttentionSelectorConfig
    model, cache, text = config.model_config, config.cache_config, config.model_config.hf_text_config
    kinds = getattr(text, "layer_types", None) or []
    window = getattr(text, "sliding_window", None) is not None and getattr(text, "use_sliding_window", True)
    sliding = {kind == "sliding_attention" for kind in kinds if "attention" in kind} if kinds else {window}
    known = {
        "head_size": model.get_head_size(),
        "dtype": model.dtype,
        "kv_cache_dtype": cache.cache_dtype,
        "block_size": cache.block_size if getattr(cache, "user_specified_block_size", False) else None,
        "use_mla": model.use_mla,
        "has_sink": bool(SINK_MODELS & set(model.architectures)),
        "use_sparse": hasattr(text, "index_topk"),
        "use_mm_prefix": bool(getattr(model, "is_mm_prefix_lm", False)),
        "use_kv_connector": config.kv_transfer_config is not None,
        "use_non_causal": bool(getattr(getattr(config, "attention_config", None), "use_non_causal", False)),
        "use_pcp": getattr(config.parallel_config, "prefill_context_parallel_size", 1) > 1,
        "use_dcp": getattr(config.parallel_config, "decode_context_parallel_size", 1) > 1,
    }
    fields = {name: value for name, value in known.items() if name in selector._fields}
    has_window = "has_sliding_window" in selector._fields
    return [selector(**fields, **({"has_sliding_window": kind} if has_window else {})) for kind in sorted(sliding)]


def listed_by_platform(platform_class, members: list, layer, heads: int) -> list:
    """CUDA: what its own selector finds valid or invalid, in its order; other backends are not candidates for it."""
    capability = platform_class.get_device_capability()
    # Importing FlashInfer asks torch for the devices, which makes a CUDA context, unless it is told the architecture.
    os.environ.setdefault("FLASHINFER_CUDA_ARCH_LIST", f"{capability.major}.{capability.minor}")
    asked = {"device_capability": capability, "attn_selector_config": layer, "num_heads": heads}
    accepted = inspect.signature(platform_class.get_valid_backends).parameters
    valid, invalid = platform_class.get_valid_backends(**{k: v for k, v in asked.items() if k in accepted})
    listed = [(getattr(item, "backend", None) or item[0], []) for item in valid]
    # (priority, reasons) in recent releases, the reasons alone in older ones
    listed += [(member, list(why[1] if isinstance(why, tuple) else why)) for member, why in invalid.items()]
    named = {member for member, _ in listed}
    elsewhere = [(member, ["not among the backends vLLM considers for this model and GPU"]) for member in members]
    return listed + [(member, why) for member, why in elsewhere if member not in named]


def asked_one_by_one(platform_class, members: list, layer, heads: int) -> list:
    """Other platforms answer with the backend that they would run, which need not be the one that was asked for."""
    names = {member.value: member.name for member in members}
    accepted = inspect.signature(platform_class.get_attn_backend_cls).parameters
    known = {"attn_selector_config": layer, "num_heads": heads}
    answers = []
    for member in members:
        try:
            chosen = platform_class.get_attn_backend_cls(member, **{k: v for k, v in known.items() if k in accepted})
        except Exception as error:
            answers.append((member, [one_line(error)]))
            continue
        same = chosen == member.value
        answers.append((member, [] if same else [f"vLLM would silently run {names.get(chosen, chosen)} instead"]))
    return sorted(answers, key=lambda answer: bool(answer[1]))


def merged(answers: list) -> list:
    """A backend is valid for the model where it is valid for every kind of layer."""
    reasons: dict = {}
    for answer in answers:
        for member, why in answer:
            reasons.setdefault(member.name, []).extend(why)
    listed = [{"name": name, "reasons": list(dict.fromkeys(why))} for name, why in reasons.items()]
    return sorted(listed, key=lambda backend: bool(backend["reasons"]))


def one_line(error: object) -> str:
    """Text on one line, without what pydantic puts around the complaint itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    joined = " ".join(line for line in lines if "errors.pydantic.dev" not in line)
    return re.sub(r"^\d+ validation errors? for \w+ (Value error, )?|\s*\[type=\w+, input_value=.*\]$", "", joined)


if __name__ == "__main__":
    main()
