"""vLLM's own benchmark client, imported once and then run in-process, one benchmark a request.

Runs in the target interpreter. One JSON object a line on standard input is a request, one line on standard output is
the answer; standard error takes everything that vLLM prints. The import (some ten seconds) starts at once, before the
first request, so that it passes while a server starts.

Request: base_url, served_name, tokenizer (model folder or hub id), input_tokens, output_tokens, prefix_tokens,
length_spread, num_prompts, seed, concurrency or rate, result_path, and optionally trust_remote_code; or {"ping": true}.
With `share` ({"index", "of", "barrier"}) this process is one of several that send one load: all draw the same prompts,
each sends its own part of them with its part of the load, and all begin at one instant (`barrier` is a folder that they
share).
Answer: {"ok": true, "result_path": ..., "vllm_version": ...}, or {"ok": false, "error": ..., "error_class": ...}, where
the error class `ClientImportError` means that no request can ever succeed in this interpreter.

The result file is vLLM's own with one key more, `advisor_client`: see Meter.

Written against vllm/benchmarks/serve.py of vLLM 0.26.0 and 0.32.0: `add_cli_args`, `main_async`, which calls `benchmark`
with keywords, and ASYNC_REQUEST_FUNCS, in which that finds the function that sends one request.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import math
import os
import sys
import time

# Options that older or newer clients may lack: left out there instead of failing. Everything else must exist.
OPTIONAL = {"--ready-check-timeout-sec", "--num-warmups", "--disable-tqdm", "--temperature", "--trust-remote-code"}
BACKEND = "openai"
ALONE = {"index": 0, "of": 1}
BARRIER_LIMIT_S = 300.0  # the others draw the same prompts, so they are not much later than this process
BARRIER_AHEAD_S = 0.25  # from the moment when the last one is ready to the common start: each looks every 10 ms
FAILED = "failed"
PROBE_EVERY_S = 0.01
PROBE_GRAIN_S = 0.001  # asyncio rounds a wait up to whole milliseconds: so much lateness is its own


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
        self.meter = Meter(serve)

    def run(self, request):
        """Run one benchmark; the result file appears at request["result_path"] whole or not at all."""
        if self.failure:
            raise ClientImportError(self.failure)
        if request.get("share") and self.meter.inner is None:
            raise ClientImportError(f"the benchmark client of vLLM {self.version} cannot be run in several processes")
        path = request["result_path"]
        partial = path + ".partial"
        words = [word for option in options(request, partial) for word in self._supported(option)]
        args = self.parser.parse_args(words)
        self.meter.request = request
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
        ["--backend", BACKEND],
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


class Meter:
    """Stands around the client's `benchmark` function: sends this process's share of the load, and watches itself do it.

    Adds to the result, as `advisor_client`: cpu_s and wall_s from the first request sent to the last one back; `began`
    and `ended`, the same two moments on the machine's monotonic clock; `loop_lags_s`, by how much a timer of every 10 ms
    was late; `send_lags_s`, by how much requests were sent after they were due; `prompts`, a digest of all prompts of the
    run, before they were divided.
    """

    def __init__(self, serve):
        self.serve, self.request = serve, {}
        self.inner = getattr(serve, "benchmark", None)
        if self.inner is not None:
            serve.benchmark = self.benchmark

    async def benchmark(self, **words):
        share = self.request.get("share") or ALONE
        digest = prompts_digest(words["input_requests"])
        if share["of"] > 1:
            import numpy

            words |= divided(words, share)
            numpy.random.seed(
                [self.request["seed"], share["index"]]
            )  # arrivals of its own, where a rate drives the load
            await common_start(share)
        functions = self.serve.ASYNC_REQUEST_FUNCS
        plain = functions[BACKEND]
        self.starts, self.ends, self.cpu_s = [], [], []
        functions[BACKEND] = self.watched(plain)
        lags = []
        probe = asyncio.create_task(loop_lags(lags))
        called = time.perf_counter()
        try:
            result = await self.inner(**words)
        finally:
            probe.cancel()
            functions[BACKEND] = plain
        return {**result, "advisor_client": {"prompts": digest, "loop_lags_s": lags, **self.report(words, called)}}

    def watched(self, send):
        async def watched_send(*args, **kwargs):
            self.starts.append(time.perf_counter())
            self.cpu_s.append(time.process_time())
            try:
                return await send(*args, **kwargs)
            finally:
                self.ends.append(time.perf_counter())
                self.cpu_s.append(time.process_time())

        return watched_send

    def report(self, words, called):
        if not self.ends:
            return {}
        rate = words.get("request_rate") or math.inf
        due = None if math.isinf(rate) else called + len(words["input_requests"]) / rate
        return {
            "cpu_s": self.cpu_s[-1] - self.cpu_s[0],
            "wall_s": self.ends[-1] - self.starts[0],
            "began": self.starts[0],
            "ended": self.ends[-1],
            "send_lags_s": send_lags(self.starts, self.ends, words.get("max_concurrency"), due),
        }


def divided(words, share):
    """This process's part: every n-th prompt, and its part of the requests in flight or of the rate."""
    index, of = share["index"], share["of"]
    changed = {"input_requests": words["input_requests"][index::of]}
    if words.get("max_concurrency"):
        changed["max_concurrency"] = len(range(index, words["max_concurrency"], of))
    if not math.isinf(words.get("request_rate") or math.inf):
        changed["request_rate"] = words["request_rate"] / of
    return changed


def send_lags(starts, ends, concurrency, last_due):
    """Seconds by which requests were late. With `concurrency` in flight one is due when another ends; with a rate vLLM
    stretches the arrivals so that the last one falls on `last_due`, and only that one is known."""
    if last_due is not None:
        return [max(0.0, starts[-1] - last_due)]
    later = sorted(starts)[concurrency:] if concurrency else []
    return [max(0.0, start - end) for start, end in zip(later, sorted(ends))]  # noqa: B905


def prompts_digest(requests):
    """16 hex digits over what is sent: every prompt and the length of its answer, in order."""
    digest = hashlib.sha256()
    for request in requests:
        digest.update(json.dumps([request.prompt, request.expected_output_len]).encode())
    return digest.hexdigest()[:16]


async def loop_lags(lags):
    """Append by how much each wake-up was late, for as long as the task runs."""
    while True:
        due = time.perf_counter() + PROBE_EVERY_S
        await asyncio.sleep(PROBE_EVERY_S)
        lags.append(max(0.0, time.perf_counter() - due - PROBE_GRAIN_S))


async def common_start(share):
    """Wait until all processes of the load are ready, then until the instant that follows from the last one's clock."""
    folder, of = share["barrier"], share["of"]
    mine = os.path.join(folder, str(share["index"]))
    with open(mine + ".partial", "w") as file:
        file.write(repr(time.perf_counter()))  # the monotonic clock is the machine's, not the process's
    os.replace(mine + ".partial", mine)
    limit = time.perf_counter() + BARRIER_LIMIT_S
    names = [os.path.join(folder, str(index)) for index in range(of)]
    while not all(os.path.exists(name) for name in names):
        if time.perf_counter() > limit or os.path.exists(os.path.join(folder, FAILED)):
            raise RuntimeError(f"not all of {of} client processes became ready")
        await asyncio.sleep(0.01)
    ready = []
    for name in names:
        with open(name) as file:
            ready.append(float(file.read()))
    await asyncio.sleep(max(0.0, max(ready) + BARRIER_AHEAD_S - time.perf_counter()))


def give_up_together(line):
    """Tell the processes of the same load that this one will not come."""
    try:
        barrier = json.loads(line)["share"]["barrier"]
        open(os.path.join(barrier, FAILED), "w").close()
    except (OSError, ValueError, KeyError, TypeError):
        pass  # a load of one process, or all is over


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
        give_up_together(line)
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
