"""vLLM's own benchmark client, imported once and then run in-process, one benchmark a request.

Runs in the target interpreter. One JSON object a line on standard input is a request, one line on standard output is
the answer; standard error takes everything that vLLM prints. The import (some ten seconds) starts at once, before the
first request, so that it passes while a server starts.

Request: base_url, served_name, tokenizer (model folder or hub id), input_tokens, output_tokens, prefix_tokens,
length_spread, num_prompts, seed, concurrency or rate, result_path, and optionally trust_remote_code; or {"ping": true}.
Answer: {"ok": true, "result_path": ..., "vllm_version": ...}, or {"ok": false, "error": ..., "error_class": ...}, where
the error class `ClientImportError` means that no request can ever succeed in this interpreter.

Written against vllm/benchmarks/serve.py of vLLM 0.26.0 and 0.32.0: `add_cli_args` and `main_async`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys

# Options that older or newer clients may lack: left out there instead of failing. Everything else must exist.
OPTIONAL = {"--ready-check-timeout-sec", "--num-warmups", "--disable-tqdm", "--temperature", "--trust-remote-code"}


class ClientImportError(Exception):
    """This interpreter has no vLLM, or one whose benchmark client is not the known one."""


class Client:
    """The imported benchmark client and the options that it knows."""

    def __init__(self):
        self.failure = None
        try:
            self._load()
        except Exception as error:  # anything that an import of vLLM can raise; told to whoever asks
            self.failure = f"{type(error).__name__}: {error}"

    def _load(self):
        import vllm
        from vllm.benchmarks import serve

        self.version = getattr(vllm, "__version__", "unknown").split("+")[0]
        self.main_async = serve.main_async
        self.parser = _parser(serve)
        self.known = set(self.parser._option_string_actions)
        _keep_tokenizer(serve)

    def run(self, request):
        """Run one benchmark; the result file appears at request["result_path"] whole or not at all."""
        if self.failure:
            raise ClientImportError(self.failure)
        path = request["result_path"]
        partial = path + ".partial"
        words = [word for option in options(request, partial) for word in self._supported(option)]
        args = self.parser.parse_args(words)
        asyncio.run(self.main_async(args))
        os.replace(partial, path)
        # main_async collects and then freezes the heap, to keep the collector out of the measurement. This process lives
        # on: thawed, what this run leaves behind is collected by the next.
        gc.unfreeze()
        return {"ok": True, "result_path": path, "vllm_version": self.version}

    def _supported(self, option):
        if option[0] in self.known:
            return option
        if option[0] in OPTIONAL:
            return []
        raise ClientImportError(f"the benchmark client of vLLM {self.version} has no option {option[0]}")


def options(request, result_path):
    """Every option of one run as [flag] or [flag, value]; no default that changed between releases."""
    folder, name = os.path.split(os.path.abspath(result_path))
    # The served name is given as the model too: vLLM asks the server's /tokenize for it by the model's name.
    chosen = [
        ["--backend", "openai"],
        ["--endpoint", "/v1/completions"],
        ["--base-url", request["base_url"]],
        ["--model", request["served_name"]],
        ["--served-model-name", request["served_name"]],
        ["--tokenizer", request["tokenizer"]],
        ["--dataset-name", "random"],
        ["--random-input-len", str(request["input_tokens"])],
        ["--random-output-len", str(request["output_tokens"])],
        ["--random-prefix-len", str(request["prefix_tokens"])],
        ["--random-range-ratio", str(request["length_spread"])],
        ["--num-prompts", str(request["num_prompts"])],
        ["--seed", str(request["seed"])],
        ["--temperature", "0"],
        ["--ignore-eos"],
        ["--num-warmups", "0"],
        ["--ready-check-timeout-sec", "0"],
        ["--percentile-metrics", "ttft,tpot,itl,e2el"],
        ["--metric-percentiles", "50,90,99"],
        ["--disable-tqdm"],
        ["--save-result"],
        ["--save-detailed"],
        ["--result-dir", folder],
        ["--result-filename", name],
    ]
    if request.get("concurrency"):
        chosen.append(["--max-concurrency", str(request["concurrency"])])
    if request.get("rate"):
        chosen.append(["--request-rate", str(request["rate"])])
    if request.get("trust_remote_code"):
        chosen.append(["--trust-remote-code"])
    return chosen


class _RaisingParser(argparse.ArgumentParser):
    """argparse ends the process over a bad value; here that is an answer."""

    def error(self, message):
        raise ValueError(message)


def _parser(serve):
    """The client's options. vLLM's own parser class brings its --config files and aliases; a plain one is enough."""
    parser = _RaisingParser(allow_abbrev=False)
    serve.add_cli_args(parser)
    return parser


def _keep_tokenizer(serve):
    """Load each tokenizer once: give the client's module the caching form of the function that it calls."""
    from vllm import tokenizers

    cached = getattr(tokenizers, "cached_get_tokenizer", None)
    if cached is not None and getattr(serve, "get_tokenizer", None) is tokenizers.get_tokenizer:
        serve.get_tokenizer = cached


def answer(client, line):
    """The answer to one request line; never raises an Exception."""
    try:
        request = json.loads(line)
        if request.get("ping"):
            if client.failure:
                raise ClientImportError(client.failure)
            return {"ok": True, "vllm_version": client.version}
        return client.run(request)
    except Exception as error:
        return {"ok": False, "error": str(error) or type(error).__name__, "error_class": type(error).__name__}


def main():
    """Serve requests until the input ends."""
    # vLLM prints to standard output: keep the protocol's end of it and point descriptor 1 to the log.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout.flush()
    os.dup2(2, 1)
    client = Client()
    for line in sys.stdin:
        if line.strip():
            channel.write(json.dumps(answer(client, line)) + "\n")
            channel.flush()


if __name__ == "__main__":
    main()
