"""When a starting server counts as ready, and when it counts as stuck: a probe for tokens, and a watch for progress."""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

# ---------------------------------------------------------------- progress (pure)


NO_TIME = "no time left in the budget"  # begins the reason of a launch that went beyond `whole_s`


@dataclass(frozen=True)
class LaunchLimits:
    """How long a start may go on without, and with, signs of progress.

    A silent and idle server is stuck. A silent one that computes may be compiling: a torch.compile of 2222 s with next
    to nothing in the log has been reported (vLLM issue 34399). Beyond `hard_s` no start is worth waiting for. `whole_s` tells
    nothing of the launch: there is no more time for it.
    """

    stall_s: float = 600.0  # nothing moves: neither log, nor CPU, nor GPU memory
    quiet_cpu_s: float = 2700.0  # CPU time is used, but neither the log nor GPU memory moves: a slow compile or a spin
    hard_s: float = 3600.0  # whatever moves
    first_token_s: float = 300.0  # the first request, once the server accepts connections; kernels may compile for it
    whole_s: float = math.inf  # start, load and questions together


# An idle server's background threads use about 1% of a core; importing, loading and compiling use a whole one.
BUSY_CORES = 0.05
# GPU memory of a loading server moves by gigabytes; that of an idle one by less than this.
GPU_MOVE_MIB = 64


@dataclass(frozen=True)
class Signs:
    """What can be seen of a server at one moment. `log_size` counts only what tells of progress (see LogTail)."""

    at_s: float
    log_size: int
    cpu_s: float  # of all its processes together
    gpu_mib: int = 0


class Progress:
    """Remembers when a start last moved. Takes times as values, so that a test needs no clock."""

    def __init__(self, limits: LaunchLimits, first: Signs):
        self.limits = limits
        self.begun_s = self.moved_s = self.busy_s = first.at_s
        self._last = first
        self._gpu_mib = first.gpu_mib

    def observe(self, now: Signs) -> str | None:
        """Take in the signs; the reason to give up, or None to go on waiting."""
        if now.log_size > self._last.log_size or abs(now.gpu_mib - self._gpu_mib) >= GPU_MOVE_MIB:
            self.moved_s = self.busy_s = now.at_s
            self._gpu_mib = now.gpu_mib
        elapsed_s = now.at_s - self._last.at_s
        # Ended children take their CPU time with them, so the sum can fall: that is no sign either way.
        if elapsed_s > 0 and (now.cpu_s - self._last.cpu_s) / elapsed_s >= BUSY_CORES:
            self.busy_s = now.at_s
        self._last = now
        return self._reason(now.at_s)

    def _reason(self, now_s: float) -> str | None:
        limits = self.limits
        if now_s - self.busy_s > limits.stall_s:
            return f"no sign of life for {limits.stall_s:.0f} s: neither log, nor CPU time, nor GPU memory moved"
        if now_s - self.moved_s > limits.quiet_cpu_s:
            return f"it uses CPU time, but log and GPU memory have not moved for {limits.quiet_cpu_s:.0f} s"
        if now_s - self.begun_s > limits.hard_s:
            return f"not ready after {limits.hard_s:.0f} s"
        return None


# ---------------------------------------------------------------- log

# Lines that a stuck server repeats for ever (shm_broadcast.py and core_client.py of vLLM): not a sign of progress.
WAITING = ("No available shared memory broadcast block found", "Waiting for ", "still waiting")

# What a start is doing once this text has been logged, in the order of a start.
PHASES = (
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Starting to load model", "loading the model"),
    ("Warming up model for the compilation", "compiling"),
    ("Starting torch.compile", "compiling"),
    ("Dynamo bytecode transform time", "compiling"),
    ("Available KV cache memory", "allocating the KV cache"),
    ("Capturing CUDA graphs", "capturing graphs"),
    ("Graph capturing finished", "starting the API server"),
    ("init engine (", "starting the API server"),
    ("Application startup complete", "asking for the first token"),
)


def phase(text: str) -> str | None:
    """The last phase that the text speaks of, None if it speaks of none."""
    found = [(text.rfind(mark), name) for mark, name in PHASES]
    position, name = max(found)
    return name if position >= 0 else None


def telling_size(text: str) -> int:
    """Characters of the text outside lines that a waiting server repeats."""
    return sum(len(line) for line in text.splitlines() if not any(mark in line for mark in WAITING))


class LogTail:
    """Reads on in a growing log. `telling` grows with everything but the repeated lines of a waiting server."""

    def __init__(self, path: Path):
        self.path = path
        self.telling = 0
        self._offset = 0

    def read(self) -> str:
        """What was added since the last call; the half line at its end waits for the next one if it is short."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        except FileNotFoundError:
            return ""
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1  # progress bars end their lines with a carriage return
        self._offset += end
        text = chunk[:end].decode(errors="replace")
        self.telling += telling_size(text)
        return text


# ---------------------------------------------------------------- probe

PROMPT = "Hello"
MAX_TOKENS = 4
CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Probe:
    """What came of one completion request. `answered` is False where no HTTP response came."""

    tokens: int = 0
    model: str | None = None
    answered: bool = False
    problem: str = ""


def complete(base_url: str, served_name: str, timeout_s: float, api_key: str | None = None) -> Probe:
    """Ask for a few greedy tokens. Never raises for what the server or the network does."""
    body = {"model": served_name, "prompt": PROMPT, "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    try:
        # trust_env off: a proxy from the environment must not stand between us and our own machine. verify off: there
        # is no TLS, and reading the certificates would cost 0.1 s each time.
        with httpx.Client(trust_env=False, verify=False, timeout=timeout) as client:
            response = client.post(f"{base_url}/v1/completions", json=body, headers=headers)
    except httpx.HTTPError as error:
        return Probe(problem=f"no answer to a completion: {error or type(error).__name__}")
    return read_completion(response.status_code, response.text, response)


def read_completion(status: int, text: str, response: httpx.Response) -> Probe:
    if status != 200:
        return Probe(answered=True, problem=f"the completion was answered with HTTP {status}: {text[:200]}")
    try:
        answer = response.json()
        tokens, model = int(answer["usage"]["completion_tokens"]), answer.get("model")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Probe(answered=True, problem=f"the answer is not a completion: {text[:200]}")
    return Probe(tokens, model, True, "" if tokens >= 1 else "the completion has no token")


class Prober:
    """Runs one probe at a time beside the watch loop: a first token can take minutes, a crash must be seen at once."""

    def __init__(self, base_url: str, served_name: str, timeout_s: float, api_key: str | None):
        self._arguments = (base_url, served_name, timeout_s, api_key)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="probe")
        self._future: Future[Probe] | None = None

    @property
    def busy(self) -> bool:
        return self._future is not None

    def poll(self) -> Probe | None:
        """The result of a finished probe; otherwise None, and a probe is on its way."""
        if self._future is None:
            self._future = self._pool.submit(complete, *self._arguments)
        if not self._future.done():
            return None
        result, self._future = self._future.result(), None
        return result

    def close(self) -> None:
        """Call it when the server has ended: a probe on its way fails then, and the thread is free to go."""
        self._pool.shutdown(wait=True, cancel_futures=True)
