"""A stand-in for `vllm serve` in tests: standard library only, up in some 0.1 s, started with the same arguments.

    python fake_engine.py serve MODEL [vLLM options] --host H --port P --served-model-name NAME

It answers /health, /version, /v1/models, /v1/completions (streaming or not) and /metrics, writes vLLM's log lines, has a
child process as vLLM has its engine process, and is faster or slower with its settings (fake_settings.py).

Environment: FAKE_SPEED tokens a second of each request, whatever the settings; FAKE_TIME_SCALE multiplies all times
(0.01 makes it a hundred times faster); FAKE_START_S seconds that the start takes; FAKE_COMPILES that the
log says where compiled code comes from; FAKE_ACTIVE_BACKEND the attention backend that runs, whatever was asked for;
FAKE_BLOCK_SIZE and FAKE_STEP_MODE the same for the block size and for the graphs that steps run in; FAKE_FAULT what goes wrong,
NAME or NAME:NUMBER (see FAULTS); FAKE_FAULT_SPEEDUP how many times faster an engine with a fault is; FAKE_GPU_FOLDER where each
process that has GPU memory leaves a file: its pid, and in it MiB (fake_gpu_memory.py reads them).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves a script's own folder out

import fake_http
import fake_log
import fake_settings
import fake_text

FAULTS = {
    **fake_text.FAULTS,
    **fake_settings.FAULTS,
    "none": "nothing goes wrong",
    **dict.fromkeys(fake_log.FAILURES, "the start fails in this way, with vLLM's words"),
    "failed_but_alive": "the engine fails, but the API server does not leave",
    "bad_option": "argparse refuses an option: exit code 2",
    "silent_exit": "exit code 3 without a word",
    "killed": "SIGKILL ends it during the start",
    "hang": "the start stops moving: no log, no CPU time",
    "spin": "the start stops moving but uses a whole core",
    "mumble": "the start stops moving but repeats a line for ever",
    "no_tokens": "completions have no token",
    "http_500": "completions are answered with HTTP 500",
    "wrong_name": "it serves another model name than it was told to",
    "wrong_port": "it listens on the port after the one it was told to use",
    "die_after_n": "SIGKILL ends it when N completions have been answered (default 1)",
    "fail_every_n": "every Nth completion is answered with HTTP 500 (default 10)",
    "dies_on_launch_n": "SIGKILL ends it in its tenth completion, the Nth time that it is started with a compile cache (default 2)",
    "stale_compile": "it crashes on what its first start left in the compile cache",
    "stale_kernels": "it crashes on what its first start left among FlashInfer's kernels, if it was told where to keep them",
    "hangs_again": "the start hangs on what its first start left among FlashInfer's kernels, if it was told where to keep them",
    "stalls_after_n": "all is silent after N completions (default 10): connections are taken, nothing is answered",
    "fades_after_n": "each token takes longer and longer after N completions (default 100)",
    "engine_dies": "the engine process ends after completion N (default 1); the rest goes on, /health says 200",
    "ignore_sigterm": "SIGTERM has no effect",
    "orphan_child": "it leaves a process in another session behind, which ignores SIGTERM",
    "reuse_port": "it shares its port with whoever else does (SO_REUSEPORT), as vLLM did up to 0.24",
    "jit_at_n": "a kernel is JIT-compiled while completion N is answered (default 20), with vLLM's warning",
    "jit_again": "another kernel is JIT-compiled with every Nth completion (default 5), with vLLM's warning",
    "preempts": "every streamed request is preempted once, by the server's own count",
    "all_cached": "every prompt token came from the prefix cache, by the server's own count",
    "one_token": "streamed answers end after one token",
    "empty_streams": "streamed answers are HTTP 200 and have no token, but an error in the stream",
    "early_end": "every Nth streamed answer has half of its tokens (default 3)",
    "cut_streams": "every Nth streamed answer breaks off in its middle (default 3)",
    "plain_words": "answers are right where log-probabilities are asked for, and other words where not",
    "wrong_after_n": "the answers of another model after N completions (default 60)",
    "counts_double": "the server counts twice what it generates: somebody else is served as well",
    "counts_half": "the server counts half of what comes back: somebody else answers as well",
    "memory_hog": "next to nothing of the GPU's memory is left",
    "memory_stays": "GPU memory is still taken when the server has ended, by no process that the driver lists",
    "memory_moves": "GPU memory is still taken when the server has ended, by a process that was there before",
    "slow_start": "the start takes N more seconds and logs all the while (default 1)",
}
FAULT, _, _number = os.environ.get("FAKE_FAULT", "").partition(":")
NUMBER = int(_number) if _number else None
TEXT = fake_text.Text(FAULT)
SCALE = float(os.environ.get("FAKE_TIME_SCALE", "1"))
BLOCK = 16  # tokens of a block of the prefix cache
WORDS = ("red", "green", "blue", "grey")
# Faults of requests that meet: an answer lasts so long that what is sent meanwhile falls into it on a busy machine too.
MEETING_S = {"wrong_mixed": 0.15, "wrong_together": 0.05}


class Engine:
    """Counts what vLLM counts and takes as long as the settings say."""

    def __init__(self, name: str, settings: dict, caching: bool, count_steps: bool = False):
        self.name, self.settings, self.caching, self.count_steps = name, settings, caching, count_steps
        self.lock = threading.Lock()
        self.running = 0
        self.present_s, self.changed_at = 0.0, time.monotonic()  # seconds that requests were here, all together
        self.answered = self.arrived = self.streams = 0
        self.long_prompts = 0  # that have arrived
        self.speedup = 1.0
        self.seen: set[int] = set()
        self.counts = dict.fromkeys(("prompt_tokens", "generation_tokens", "prefix_cache_queries"), 0)
        self.counts |= dict.fromkeys(("prefix_cache_hits", "num_preemptions", "request_success"), 0)

    def change_running(self, by: int) -> None:
        now = time.monotonic()
        self.present_s += self.running * (now - self.changed_at)
        self.running, self.changed_at = self.running + by, now

    def take_in(self, prompt: str | list[int]) -> int:
        """Number of prompt tokens (words, where it is text); whole blocks that were there before are cache hits."""
        tokens = prompt.split() if isinstance(prompt, str) else prompt
        with self.lock:
            self.change_running(1)
            self.long_prompts += len(tokens) >= fake_text.LONG
            self.counts["prompt_tokens"] += len(tokens)
            if self.caching:
                self.counts["prefix_cache_queries"] += len(tokens)
                blocks = [hash(tuple(tokens[:end])) for end in range(BLOCK, len(tokens) + 1, BLOCK)]
                self.counts["prefix_cache_hits"] += BLOCK * sum(block in self.seen for block in blocks)
                self.seen.update(blocks)
            if FAULT == "all_cached":
                self.counts["prefix_cache_hits"] = self.counts["prompt_tokens"]
        return len(tokens)

    def arrival(self) -> int:
        with self.lock:
            self.arrived += 1
            return self.arrived

    def done(self, tokens: int) -> None:
        with self.lock:
            self.change_running(-1)
            self.answered += 1
            self.counts["generation_tokens"] += tokens * {"counts_double": 2, "counts_half": 0.5}.get(FAULT, 1)
            self.counts["num_preemptions"] += FAULT == "preempts"
            self.counts["request_success"] += 1
            again = FAULT == "jit_again" and self.answered % (NUMBER or 5) == 0
            if again or (FAULT == "jit_at_n" and self.answered == (NUMBER or 20)):
                fake_log.compiling(f"_fused_kernel_{self.answered}")
            if self.count_steps:
                fake_log.graph_table(self.settings, self.running + 1, tokens)

    def token_s(self) -> float:
        speed = os.environ.get("FAKE_SPEED")
        took = 1 / float(speed) if speed else SCALE * fake_settings.tpot_ms(self.settings, self.running) / 1000
        if FAULT == "fades_after_n":
            took *= 1 + max(0, self.answered - (NUMBER or 100)) / 50
        return took / self.speedup

    def faulty_stream(self) -> bool:
        """Whether this stream is one of those that a fault of every Nth is about."""
        with self.lock:
            self.streams += 1
            return self.streams % (NUMBER or 3) == 0

    def metrics(self) -> str:
        labels = f'engine="0",model_name="{self.name}"'
        info = fake_settings.cache_config(self.settings, self.caching)
        lines = ["# TYPE vllm:cache_config_info gauge", f"vllm:cache_config_info{{{info}}} 1.0"]
        lines += [f"vllm:num_requests_running{{{labels}}} {float(self.running)}"]
        lines += [f"vllm:e2e_request_latency_seconds_sum{{{labels}}} {self.present_s}"]
        for name, value in self.counts.items():
            reason = ',finished_reason="length"' if name == "request_success" else ""
            lines.append(f"# TYPE vllm:{name}_total counter")
            lines.append(f"vllm:{name}_total{{{labels}{reason}}} {float(value)}")
        return "\n".join(lines) + "\n"


class Handler(fake_http.Handler):
    engine: Engine

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(200, b"", "text/plain")
        elif self.path == "/metrics":
            self.reply(200, self.engine.metrics().encode(), "text/plain; version=0.0.4")
        elif self.path == "/version":
            self.reply_json({"version": fake_log.VERSION})
        elif self.path == "/v1/models":
            self.reply_json({"object": "list", "data": [{"id": self.engine.name, "object": "model"}]})
        else:
            self.reply_json({"error": {"message": "Not Found", "code": 404}}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.body())
        if self.path == "/tokenize":
            tokens = TEXT.tokenise(body["prompt"])
            self.reply_json({"count": len(tokens), "max_model_len": fake_text.MAX_LENGTH, "tokens": tokens})
        elif self.path != "/v1/completions":
            self.reply_json({"error": {"message": "Not Found", "code": 404}}, 404)
        elif body.get("model") != self.engine.name and FAULT != "wrong_name":
            self.reply_json({"error": {"message": f"The model `{body.get('model')}` does not exist."}}, 404)
        elif FAULT == "http_500" or (
            FAULT == "fail_every_n" and self.engine.arrival() % (NUMBER or 10) == 0
        ):
            self.engine.answered += 1
            self.reply_json({"error": {"message": "Internal Server Error", "code": 500}}, 500)
        elif FAULT == "stalls_after_n" and self.engine.answered >= (NUMBER or 10):
            time.sleep(600)
        elif FAULT == "engine_dies" and self.engine.answered >= (NUMBER or 1):
            self.reply_json({"error": {"message": "EngineCore encountered an issue.", "code": 500}}, 500)
        else:
            self.complete(body)
        self.after_answer()

    def complete(self, body: dict) -> None:
        prompts = self.engine.take_in(body["prompt"])
        long_before = self.engine.long_prompts
        tokens = 0 if FAULT == "no_tokens" else int(body.get("max_tokens", 16))
        if body.get("stream"):
            tokens = {"one_token": min(tokens, 1), "empty_streams": 0}.get(FAULT, tokens)
            cut = FAULT in ("early_end", "cut_streams") and self.engine.faulty_stream()
            tokens = tokens // 2 if cut else tokens
        usage = {"prompt_tokens": prompts, "completion_tokens": tokens, "total_tokens": prompts + tokens}
        time.sleep(prompts * self.engine.token_s() / 100)  # a prompt token costs a hundredth of a decoded one
        try:
            if body.get("stream"):
                self.stream(tokens, usage, bool((body.get("stream_options") or {}).get("include_usage")), cut)
            else:
                time.sleep(tokens * self.engine.token_s())
                if body.get("logprobs") or body.get("prompt_logprobs"):
                    time.sleep(MEETING_S.get(FAULT, 0.0))
                    self.reply_text(body, usage, self.engine.long_prompts > long_before)
                    return
                words = ("grey",) if FAULT == "plain_words" else WORDS
                text = " ".join(words[i % len(words)] for i in range(tokens))
                more = {"usage": usage, "fake_token_s": self.engine.token_s()}  # for clients that do not measure
                self.reply_json(self.chunk(text, "length") | more)
        finally:
            self.engine.done(tokens)

    def reply_text(self, body: dict, usage: dict, mixed: bool) -> None:
        late = FAULT == "wrong_after_n" and self.engine.answered >= (NUMBER or 60)
        status, choice = TEXT.answer(body, self.engine.running, mixed, late)
        if status != 200:
            self.reply_json(choice, status)
            return
        written = len((choice["logprobs"] or {"tokens": [0]})["tokens"])
        self.reply_json(
            self.chunk("", None) | {"choices": [{"index": 0, **choice}], "usage": usage | {"completion_tokens": written}}
        )

    def stream(self, tokens: int, usage: dict, with_usage: bool, cut: bool) -> None:
        self.head(200, Content_Type="text/event-stream; charset=utf-8", Transfer_Encoding="chunked")
        for index in range(tokens):
            time.sleep(self.engine.token_s())
            last = "length" if index == tokens - 1 else None
            self.event(json.dumps(self.chunk(" " + WORDS[index % 4], last)))
        if FAULT == "empty_streams":  # as vLLM tells of an error when the answer has begun
            self.event(json.dumps({"error": {"message": "EngineCore encountered an issue.", "code": 500}}))
        if cut and FAULT == "cut_streams":
            self.close_connection = True
            return
        if with_usage:
            self.event(json.dumps(self.chunk("", None) | {"choices": [], "usage": usage}))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data: str) -> None:
        payload = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(payload), payload))
        self.wfile.flush()

    def chunk(self, text: str, finish: str | None) -> dict:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        name = "somebody-else" if FAULT == "wrong_name" else self.engine.name
        return {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": name, "choices": [choice]}

    def reply_json(self, value: dict, status: int = 200) -> None:
        self.reply(status, json.dumps(value).encode(), "application/json")

    def reply(self, status: int, body: bytes, kind: str) -> None:
        self.head(status, Content_Type=kind, Content_Length=str(len(body)))
        self.wfile.write(body)

    def after_answer(self) -> None:
        self.wfile.flush()
        if FAULT == "die_after_n" and self.engine.answered >= (NUMBER or 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "dies_on_launch_n" and STARTS[:1] == [NUMBER or 2] and self.engine.answered >= 10:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "engine_dies" and self.engine.answered == (NUMBER or 1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(ENGINE_PROCESS[0], signal.SIGKILL)


ENGINE_PROCESS: list[int] = []
STARTS: list[int] = []  # how often it was started with this cache, this time included
GPU_MIB = 100_000  # of the 143,156 of fake_nvml.FakeGpu


def fork_engine_process(listening: socket.socket) -> None:
    """A child that ends with its parent, as vLLM's engine process does."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        listening.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        take_gpu_memory(os.getpid(), 143_000 if FAULT == "memory_hog" else GPU_MIB)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    ENGINE_PROCESS.append(pid)
    signal.signal(signal.SIGCHLD, lambda *_: os.waitpid(-1, os.WNOHANG))


def leave_orphan() -> None:
    """A grandchild whose parent is gone, in a session of its own, deaf to SIGTERM."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            take_gpu_memory(os.getpid(), 30_000)
            while True:
                time.sleep(60)
        os._exit(0)
    os.wait()


def take_gpu_memory(pid: int, mib: int) -> None:
    if folder := os.environ.get("FAKE_GPU_FOLDER"):
        with open(os.path.join(folder, f"{pid:d}"), "w") as out:
            out.write(str(mib))


FLASHINFER = "FLASHINFER_WORKSPACE_BASE"  # of the caches only the proof of a winner moves this one


def starts_with(variable: str) -> int:
    """How often this engine was started with the cache that the variable names, this time included; 0 without one."""
    if not (folder := os.environ.get(variable)):
        return 0
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "fake-starts")
    with open(file, "a") as out:
        out.write("x")
    return os.stat(file).st_size


def misbehave_at_start() -> None:
    """The faults of a start; returns for all others."""
    if FAULT in fake_log.FAILURES:
        fake_log.failing(FAULT)
        sys.exit(1)
    if FAULT == "failed_but_alive":
        fake_log.failing("exit_at_start")
        time.sleep(600)
    if FAULT == "bad_option":
        print("usage: main.py [-h] [-v]\nmain.py: error: unrecognized arguments: --no-such-option", file=sys.stderr)
        sys.exit(2)
    if FAULT == "silent_exit":
        os._exit(3)
    if FAULT == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "orphan_child":
        leave_orphan()
    if FAULT == "dies_on_launch_n":
        STARTS.append(starts_with("VLLM_CACHE_ROOT"))
    stale = {"stale_compile": "VLLM_CACHE_ROOT", "stale_kernels": FLASHINFER}.get(FAULT)
    if stale and starts_with(stale) > 1:
        fake_log.failing("stale_cache")
        sys.exit(1)
    if FAULT == "hangs_again" and starts_with(FLASHINFER) > 1:
        time.sleep(600)
    if FAULT in ("memory_stays", "memory_moves"):
        take_gpu_memory(FAULT == "memory_moves", 30_000)  # pid 1, which no signal of ours ends
    if FAULT == "slow_start":
        for step in range(10 * (NUMBER or 1)):
            fake_log.say("weight_utils.py:1", f"loading shard {step}")
            time.sleep(0.1)
    while FAULT in ("hang", "spin", "mumble"):
        if FAULT == "hang":
            time.sleep(60)
        elif FAULT == "mumble":
            fake_log.say("shm_broadcast.py:681", "No available shared memory broadcast block found in 60 seconds.")
            time.sleep(0.1)


def option(argv: list[str], name: str) -> str | None:
    return argv[len(argv) - 1 - argv[::-1].index(name) + 1] if name in argv else None


def main(argv: list[str]) -> None:
    if FAULT and FAULT not in FAULTS:
        sys.exit(f"FAKE_FAULT={FAULT} is unknown; known: {', '.join(FAULTS)}")
    stop = signal.SIG_IGN if FAULT == "ignore_sigterm" else (lambda *_: os._exit(0))
    signal.signal(signal.SIGTERM, stop)
    command, model = argv[0], argv[1]
    assert command == "serve", command
    name = option(argv, "--served-model-name") or model
    port = int(option(argv, "--port") or 8000) + (FAULT == "wrong_port")
    asked = fake_settings.read(argv[2:])
    settings = fake_settings.replaced(asked, FAULT)
    Handler.engine = Engine(name, settings, "--no-enable-prefix-caching" not in argv, "--cudagraph-metrics" in argv)
    if FAULT and (settings != asked or FAULT not in fake_settings.FAULTS):
        Handler.engine.speedup = float(os.environ.get("FAKE_FAULT_SPEEDUP", "1"))
    # vLLM takes its port before it starts the engine, and answers on it after.
    server = fake_http.Server((option(argv, "--host") or "0.0.0.0", port), Handler, share_port=FAULT == "reuse_port")
    if folder := os.environ.get("VLLM_RPC_BASE_PATH"):
        socket.socket(socket.AF_UNIX).bind(f"{folder}/{os.urandom(16).hex()}")  # stays behind, as vLLM's do
    misbehave_at_start()
    time.sleep(float(os.environ.get("FAKE_START_S", "0")))
    fork_engine_process(server.socket)
    fake_log.starting(model, name, settings)
    server.listen()
    print("INFO:     Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
