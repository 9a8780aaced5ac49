"""One vLLM engine whose core is in this process and is stepped by it: what anatomy.py and attention.py share.

They load this file by its path and add their own requests to `SteppedEngine`. The core is in this process
(VLLM_ENABLE_V1_MULTIPROCESSING=0, set by whoever starts it). Written against vLLM 0.26.0 (CUDA) and 0.32.0 (CPU):
LLMEngine.engine_core (InprocClient.get_output, .engine_core), EngineCore.scheduler and batch_queue, Scheduler.schedule and
max_num_scheduled_tokens, SchedulerOutput.num_scheduled_tokens.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import os
import random
import sys
import time
import traceback

BEGUN = time.perf_counter()
STEP_LIMIT = 100_000  # of steps until a batch decodes: a bound for what should never hang
RELEASE_S = 15.0  # how long the memory of a process that has ended may take to come back


class Refusal(Exception):
    """The request is sound and cannot be answered on this machine or with this engine."""


class Late(Refusal):
    """The time that a request was given is over."""


def answer_requests(engine: SteppedEngine) -> None:
    """JSON lines, standard input to standard output: `{"do": NAME, ...}` calls `do_NAME`, until the input ends."""
    requests, answers = open_channel()
    for line in requests:
        answers.write(json.dumps(answer(engine, json.loads(line))) + "\n")
        answers.flush()


def answer(engine: SteppedEngine, request: dict) -> dict:
    """One answer; never raises an Exception."""
    try:
        words = {name: value for name, value in request.items() if name != "do"}
        return {"ok": True, **getattr(engine, f"do_{request['do']}")(**words)}
    except SystemExit:
        return {"ok": False, "error_type": "ArgumentError", "error": "vLLM refuses the arguments, as its log says"}
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split()) or repr(error)
        return {"ok": False, "error_type": type(error).__name__, "error": text[:2000]}


def open_channel():
    """The protocol's own streams: vLLM logs to descriptor 1 and its children inherit both, so 0 and 1 move."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


# ---------------------------------------------------------------- engine


class SteppedEngine:
    """The engine, once started, and its requests."""

    def __init__(self):
        self.engine = None
        self.imported: float | None = None

    def do_import(self) -> dict:
        """What `start` imports, before it is asked for; what passes from here until then is no part of the start."""
        for module in ("vllm.engine.arg_utils", "vllm.entrypoints.cli.serve", "vllm.v1.engine.llm_engine"):
            importlib.import_module(module)
        self.imported = time.perf_counter()
        return {}

    def do_start(self, argv: list) -> dict:
        """Seconds count from the start of this process. Raises Refusal for an engine of several processes."""
        waited = 0.0 if self.imported is None else time.perf_counter() - self.imported
        config = engine_config([str(word) for word in argv])
        if config.parallel_config.world_size > 1:
            raise Refusal("one GPU is looked at: without tensor or pipeline parallelism")
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        self.before_loading(config)
        imported = time.perf_counter()
        waited_for_memory = until_released(config.cache_config)
        self.engine = LLMEngine.from_vllm_config(config, usage_context=UsageContext.OPENAI_API_SERVER)
        ready = time.perf_counter()
        if not hasattr(self.engine.engine_core, "engine_core"):
            raise Refusal("the engine core runs in another process: VLLM_ENABLE_V1_MULTIPROCESSING is not 0 there")
        self.core, self.cuda = self.engine.engine_core.engine_core, cuda()
        self.vocabulary = config.model_config.get_vocab_size()
        return {
            "imports_s": round(imported - BEGUN - waited, 2),  # configuration included
            "engine_s": round(ready - imported - waited_for_memory, 2),
            "start_s": round(ready - BEGUN - waited - waited_for_memory, 2),
            "pipelined": getattr(self.core, "batch_queue", None) is not None,
            "kv_tokens": kv_tokens(config.cache_config),
            "threads": importlib.import_module("torch").get_num_threads(),
            **described(config),
            **self.after_loading(config),
        }

    def before_loading(self, config) -> None:
        """For those that look at more than the steps; may raise Refusal."""

    def after_loading(self, config) -> dict:  # noqa: ARG002
        """What the answer to `start` holds besides."""
        return {}

    def model(self):
        return self.core.model_executor.driver_worker.get_model()

    def drain(self) -> None:
        importlib.import_module("torch").cuda.synchronize()

    def add(self, count: int, tokens: int, new_tokens: int, seed: int | None) -> list:
        """Add requests; the names that the engine gave them. With a seed the n-th prompt is always the same.

        A shorter one then is the beginning of a longer one, so that the engine finds its cached blocks again.
        """
        from vllm import SamplingParams

        params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=new_tokens, detokenize=False)
        names = []
        for index in range(count):
            draw = random.Random(None if seed is None else seed * 100_003 + index)
            prompt = {"prompt_token_ids": draw.choices(range(10, self.vocabulary - 1), k=tokens)}
            name = f"{time.perf_counter_ns()}-{index}"
            names.append(self.engine.add_request(name, prompt, params) or name)
        return names

    def forget(self, names: list) -> None:
        """Take requests out of the engine, whether they have ended or not, and let it notice."""
        accepted = inspect.signature(self.engine.abort_request).parameters
        self.engine.abort_request(names, **({"internal": True} if "internal" in accepted else {}))
        settle(self.core, self.engine)


class Batch:
    """So many requests that all decode, one token each a step, for the length of the block.

    `beside`: tokens of the KV cache that other requests take meanwhile. `until` (of time.perf_counter): when to give up.
    """

    def __init__(
        self, owner: SteppedEngine, size: int, prompt: int, steps: int, beside: int = 0, until: float = float("inf")
    ):
        self.owner, self.size, self.prompt, self.until = owner, size, max(1, prompt), until
        self.produced: dict = {}
        # Those that are prefilled first decode meanwhile: so many steps may pass before the last one begins.
        self.budget = steps + 2 + self.size * self.prompt // 16
        limit = owner.engine.vllm_config.model_config.max_model_len
        self.budget = min(self.budget, limit - self.prompt - 1)
        if self.budget < steps + 2:
            raise Refusal(f"{self.prompt + steps} tokens a request are more than the model length of {limit}")
        needs_kv(owner, size * (self.prompt + steps + 2) + beside)

    def __enter__(self) -> Batch:
        settle(self.owner.core, self.owner.engine)
        self.names = self.owner.add(self.size, self.prompt, self.budget, seed=1)
        try:
            self._fill()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _fill(self) -> None:
        for _ in range(STEP_LIMIT):
            self._count(self.owner.engine.engine_core.get_output())
            if len(self.produced) == self.size:
                return
            if time.perf_counter() > self.until:
                done = len(self.produced)
                raise Late(f"the time was over when {done} of {self.size} prompts were in the KV cache")
        raise RuntimeError("the batch never came to decode")

    def __exit__(self, *raised: object) -> None:
        Leaving(self.owner, self.names).__exit__(*raised)

    def steps(self, count: int) -> list:
        """Seconds from the end of one step to the end of the next. Raises Refusal where one was no decode step of all.

        What a step returned is looked at when all are done: looking takes time, which the GPU would use to catch up.
        """
        step, returned, ends = self.owner.engine.engine_core.get_output, [], [time.perf_counter()]
        for _ in range(count):
            returned.append(step())
            ends.append(time.perf_counter())
        self._check(returned)
        return [end - begun for begun, end in itertools.pairwise(ends)]

    def drained(self, count: int) -> tuple:
        """(seconds of each step with the GPU drained after it, seconds of these in which the host had work to do).

        The result that such a step takes back is one that the GPU has finished: a pipelined core waits for nothing in it.
        """
        step, drain, returned, whole, work = self.owner.engine.engine_core.get_output, self.owner.drain, [], [], []
        drain()
        for _ in range(count):
            begun = time.perf_counter()
            returned.append(step())
            worked = time.perf_counter()
            drain()
            whole.append(time.perf_counter() - begun)
            work.append(worked - begun)
        self._check(returned)
        return whole, work

    def _check(self, returned: list) -> None:
        tokens = [self._count(outputs) for outputs in returned]
        if any(number != self.size for number in tokens):
            odd = next(number for number in tokens if number != self.size)
            raise Refusal(f"a step gave {odd} tokens where {self.size} requests decode")

    def mean_tokens(self) -> float:
        """Tokens a request in the KV cache, on average."""
        return self.prompt + sum(self.produced.values()) / self.size

    def _count(self, outputs) -> int:
        """Tokens that a step returned, counted for their requests."""
        for item in outputs.outputs:
            self.produced[item.request_id] = self.produced.get(item.request_id, 0) + len(item.new_token_ids)
        return sum(len(item.new_token_ids) for item in outputs.outputs)


class Leaving:
    """The requests are taken out of the engine when the block ends.

    An engine that has just failed may fail again at that; the first error is the one to tell.
    """

    def __init__(self, owner: SteppedEngine, names: list):
        self.owner, self.names = owner, names

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        with contextlib.suppress(*[Exception] * (kind is not None)):
            self.owner.forget(self.names)


def needs_kv(owner: SteppedEngine, tokens: int) -> None:
    """Raises Refusal where the KV cache holds fewer tokens."""
    held = kv_tokens(owner.engine.vllm_config.cache_config)
    if held and tokens > held:
        raise Refusal(f"the KV cache holds {held:,} tokens, {tokens:,} are needed")


def until_released(cache) -> float:
    """Seconds slept until the GPU has free what vLLM will claim of it: one engine follows another that has just ended.

    vLLM refuses to start at once where that is not free (request_memory in v1/worker/utils.py). After RELEASE_S it may say so.
    """
    share, slept = getattr(cache, "gpu_memory_utilization", None), 0.0
    if share is None or not cuda():
        return slept
    memory = importlib.import_module("torch").cuda.mem_get_info
    while slept < RELEASE_S:
        free, total = memory()
        if free >= share * total:
            break
        time.sleep(0.5)
        slept += 0.5
    return slept


def settle(core, engine) -> None:
    """Step until nothing is left, what an asynchronous scheduler has in flight included."""
    for _ in range(64):
        if not core.scheduler.has_requests() and not getattr(core, "batch_queue", None):
            return
        engine.engine_core.get_output()


# ---------------------------------------------------------------- configuration


def engine_config(argv: list):
    """The VllmConfig that `vllm serve ARGV` would build, by the release's own parser and checks."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.usage.usage_lib import UsageContext

    parser = first_attribute("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")()
    command = cmd_init()[0]
    command.subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    args = parser.parse_args(["serve", *argv])
    command.validate(args)
    args.model = getattr(args, "model_tag", None) or args.model
    return AsyncEngineArgs.from_cli_args(args).create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def first_attribute(name: str, *modules: str):
    """`name` from the first of `modules` that has it: vLLM has moved its helpers about."""
    for module in modules:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"this vLLM has no {name} in any of {', '.join(modules)}")


def cuda() -> bool:
    return importlib.import_module("torch").cuda.is_available()


def described(config) -> dict:
    """What runs, after everything that the start has changed about it."""
    compilation = config.compilation_config
    mode, graphs = getattr(compilation, "mode", None), getattr(compilation, "cudagraph_mode", None)
    return {
        "compilation_mode": getattr(mode, "name", mode),
        "cudagraph_mode": getattr(graphs, "name", graphs),
        "capture_sizes": sorted(getattr(compilation, "cudagraph_capture_sizes", None) or ()),
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_model_len": config.model_config.max_model_len,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "kv_cache_dtype": str(config.cache_config.cache_dtype),
        "prefix_caching": bool(config.cache_config.enable_prefix_caching),
    }


def kv_tokens(cache) -> int | None:
    blocks, size = getattr(cache, "num_gpu_blocks", None), getattr(cache, "block_size", None)
    return blocks * size if blocks and size else None
