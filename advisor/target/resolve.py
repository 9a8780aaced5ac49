"""Answers what vLLM makes of a command line, without starting anything. Runs in the target interpreter, imports nothing
of ours, and stays alive: vLLM is imported at the start, requests then take milliseconds.

JSON lines, standard input to standard output, until the input ends:
    {"argv": [what follows `vllm serve`], "env": {name: value}}
 -> {"ok": true, "resolved": {...}, "seconds": 0.012}
 or {"ok": false, "error_type": "ArgumentError", "error": "one line", "seconds": ...}

The values come from vLLM's own parser and its `create_engine_config` under the API server's usage context, since
defaults such as max_num_seqs depend on it. What the engine decides only after it has loaded the model (its attention
backend where none is asked for, graph modes that the backend cannot do) is not known here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import importlib
import importlib.util
import io
import json
import os
import re
import sys
import time
from collections.abc import Mapping

# Fields that differ between two equal servers (ports, ids, clocks, folders), or that only say how other fields came to
# be (optimization_level and performance_mode fill defaults into them and are not read again, in 0.17.1 to 0.33).
IGNORED = {
    "instance_id",
    "served_model_name",
    "optimization_level",
    "performance_mode",
    "data_parallel_master_port",
    "data_parallel_rpc_port",
    "_data_parallel_master_port_list",
    "master_port",
    "local_cache_dir",
    "compilation_time",
    "encoder_compilation_time",
    "_api_process_rank",
    "_api_process_count",
}


def main() -> None:
    """Answer requests until standard input ends."""
    requests, answers = open_channel()
    base = dict(os.environ)
    with contextlib.suppress(Exception):  # the first request will say what is wrong
        preload()
    for line in requests:
        started = time.perf_counter()
        answer = respond(json.loads(line), base)
        answer["seconds"] = round(time.perf_counter() - started, 4)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def open_channel():
    """The protocol's own streams: vLLM logs to descriptor 1 and its children inherit both, so 0 and 1 move."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


def respond(request: dict, base: dict) -> dict:
    """One answer. Every request starts from the first environment: vLLM itself sets variables while it resolves."""
    added = {name: str(value) for name, value in request.get("env", {}).items()}
    os.environ.clear()
    os.environ.update(base)
    os.environ.update(added)
    said = io.StringIO()  # argparse explains itself on standard error before it exits
    try:
        with contextlib.redirect_stderr(said):
            config = engine_config([str(token) for token in request["argv"]])
        return {"ok": True, "resolved": {**resolved(config), "fingerprint": fingerprint(config, added)}}
    except SystemExit:
        return {"ok": False, "error_type": "ArgumentError", "error": parser_complaint(said.getvalue())}
    except Exception as error:  # whatever vLLM raises for a bad combination is the answer
        return {"ok": False, "error_type": type(error).__name__, "error": one_line(str(error)) or repr(error)}
    finally:
        sys.stderr.write(said.getvalue())


# ---------------------------------------------------------------- vLLM


def preload() -> None:
    """Import what every request needs, before the first one comes."""
    serve_parser()
    importlib.import_module("vllm.engine.arg_utils")


def engine_config(argv: list):
    """The VllmConfig that `vllm serve ARGV` would build."""
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError("No module named 'vllm'")
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    args = parse(argv)
    engine_args = AsyncEngineArgs.from_cli_args(args)
    return engine_args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def parse(argv: list):
    """vLLM's own namespace for `vllm serve ARGV`, through the subcommand itself, so that its checks count as well."""
    command, parser = serve_parser()
    args = parser.parse_args(["serve", *argv])
    command.validate(args)
    if getattr(args, "model_tag", None) is not None:  # `vllm serve` does this when it starts
        args.model = args.model_tag
    return args


_PARSER: tuple = ()


def serve_parser():
    """The `serve` subcommand and a parser that holds it, built once."""
    global _PARSER
    if not _PARSER:
        from vllm.entrypoints.cli.serve import cmd_init

        parser = first_attribute("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")()
        command = cmd_init()[0]
        command.subparser_init(parser.add_subparsers(required=False, dest="subparser"))
        _PARSER = (command, parser)
    return _PARSER


def first_attribute(name: str, *modules: str):
    """`name` from the first of `modules` that has it: vLLM has moved its helpers about."""
    for module in modules:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"this vLLM has no {name} in any of {', '.join(modules)}")


# ---------------------------------------------------------------- answer


def resolved(config) -> dict:
    """The values that candidates differ in. A field that this vLLM does not have is null."""
    compilation, model = config.compilation_config, config.model_config
    scheduler, cache = config.scheduler_config, config.cache_config
    attention = getattr(config, "attention_config", None)
    sizes = getattr(compilation, "cudagraph_capture_sizes", None)
    return {
        "optimization_level": plain(getattr(config, "optimization_level", None)),
        "compilation_mode": plain(getattr(compilation, "mode", getattr(compilation, "level", None))),
        "cudagraph_mode": plain(getattr(compilation, "cudagraph_mode", None)),
        "cudagraph_capture_sizes": sorted(sizes) if sizes is not None else None,
        "max_cudagraph_capture_size": getattr(compilation, "max_cudagraph_capture_size", None),
        "attention_backend": plain(getattr(attention, "backend", None)),
        "enforce_eager": model.enforce_eager,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_model_len": model.max_model_len,
        "block_size": cache.block_size,
        "kv_cache_dtype": plain(cache.cache_dtype),
        "enable_prefix_caching": cache.enable_prefix_caching,
        "async_scheduling": getattr(scheduler, "async_scheduling", None),
        "dtype": plain(model.dtype),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "pass_config": plain(getattr(compilation, "pass_config", None)),
    }


def fingerprint(config, env: dict) -> str:
    """sha256 over the whole configuration and the request's environment: equal means that the same thing would run."""
    text = json.dumps([plain(config), env], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value, depth: int = 0):
    """Any configuration value as JSON that is the same in every process: no addresses, no set order."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "__qualname__"):  # a class or function
        return f"{value.__module__}.{value.__qualname__}"
    if depth > 12:
        return type(value).__name__
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items() if str(key) not in IGNORED}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(plain(item, depth + 1), sort_keys=True) for item in value)
    return plain_object(value, depth)


def plain_object(value, depth: int):
    """A configuration object by its fields; a leaf such as a torch dtype or a path by its text."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return plain({name: getattr(value, name, None) for name in names}, depth + 1)
    if hasattr(value, "to_dict"):  # transformers' configurations
        return plain(value.to_dict(), depth + 1)
    if getattr(value, "__dict__", None):
        return {"type": type(value).__name__, **plain(vars(value), depth + 1)}
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text.removeprefix("torch.")


def parser_complaint(said: str) -> str:
    """The line of argparse that holds the complaint, without the program's name and usage."""
    lines = [line.strip() for line in said.splitlines() if ": error: " in line]
    return lines[-1].split(": error: ", 1)[1] if lines else one_line(said) or "the command line was refused"


def one_line(text: str) -> str:
    """Text on one line, without what pydantic puts around the complaint itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    joined = " ".join(line for line in lines if "errors.pydantic.dev" not in line)
    return re.sub(r"^\d+ validation errors? for \w+ (Value error, )?|\s*\[type=\w+, input_value=.*\]$", "", joined)


if __name__ == "__main__":
    main()
