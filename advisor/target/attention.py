"""One vLLM engine in this process, whose decode, prefill and mixed steps are timed. Runs in the target interpreter.

JSON lines, standard input to standard output, until the input ends; every answer has `ok`, and `error` where that is false:
    {"do": "start", "argv": [what follows `vllm serve`]}     the engine, its start, and the attention that its layers really run
    {"do": "decode", "batch", "context", "warmup", "steps", "limit_s"}
    {"do": "prefill", "batch", "context", "warmup", "steps", "limit_s", "seed"}
    {"do": "mixed", "batch", "context", "chunk", "warmup", "steps", "limit_s", "seed"}
    {"do": "trace", "phase": one of these, "windows", and what that one takes}    GPU time of such a step, under torch.profiler
Traces come after all timings: CUPTI, once it is there, stays and slows the host.

A step is one of the engine core's own: schedule, execute, sample, take the tokens back; its time is from its end back to the
end of the one before, in a row of steps of one composition, so that host work hides behind the GPU as it does in a server:
    decode    `batch` requests take one token each, with `context` tokens of each in the KV cache
    prefill   `batch` whole prompts of `context` tokens, and nothing else
    mixed     such a decode step, and in it one whole prompt of `chunk` tokens
Prompts that wait would fill a step up to vLLM's limit. So while prompts are timed, the scheduler's token budget is that of the
composition (Scheduler.max_num_scheduled_tokens); what a step does with its tokens, graphs included, is not touched. Every step
that the scheduler made in the row is held against the composition, and the figures are refused where one is another.
Every backend gets the same prompts. Those that decode are found again in the prefix cache, which saves their prefill, which is not
timed; those that are timed are new in every row, and `seed` makes them others when a row is measured again.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable


def beside(name: str):
    """A file next to this one, by its path: this folder is not searched for modules."""
    spec = importlib.util.spec_from_file_location(
        f"advisor_{name}", os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures, stepped, trace = beside("anatomy_figures"), beside("stepped_engine"), beside("step_trace")
Batch, Late, Refusal = stepped.Batch, stepped.Late, stepped.Refusal


class Attention(stepped.SteppedEngine):
    """The engine, once started, and the requests about it."""

    def before_loading(self, config) -> None:
        check_flash_attention(getattr(getattr(config, "attention_config", None), "flash_attn_version", None))

    def after_loading(self, config) -> dict:  # noqa: ARG002
        return {"attention": attention_of(self.model())}

    def do_decode(self, batch: int, context: int, warmup: int, steps: int, limit_s: float, windows: int = 0) -> dict:
        """The middle one of the steps has `context` tokens a request, on average."""
        begun, until = time.perf_counter(), time.perf_counter() + limit_s
        with Batch(self, batch, context - warmup - steps // 2, warmup + steps, until=until) as running:
            filled = time.perf_counter()
            with Scheduled(self.core.scheduler) as scheduled:
                running.steps(warmup)
                first = running.mean_tokens()
                found = self.watched(running.steps, steps, windows)
            tokens = (first + running.mean_tokens()) / 2
        scheduled.check({1: batch}, warmup + steps)
        return {**found, "context_tokens": round(tokens, 1), "steps": steps, "fill_s": round(filled - begun, 3)}

    def do_prefill(
        self, batch: int, context: int, warmup: int, steps: int, limit_s: float, seed: int, windows: int = 0
    ) -> dict:
        begun, until = time.perf_counter(), time.perf_counter() + limit_s
        stepped.needs_kv(self, 2 * batch * (context + 16))  # those of two steps are held at once where steps overlap
        stepped.settle(self.core, self.engine)
        names = self.add(batch * (warmup + steps + 1), context, 1, seed=row_seed("prefill", batch, context, seed))
        filled = time.perf_counter()
        with (
            stepped.Leaving(self, names),
            Budget(self.core.scheduler, batch * context),
            Scheduled(self.core.scheduler) as scheduled,
        ):
            found = self.row(warmup, steps, windows, until)
        scheduled.check({context: batch}, warmup + steps)
        return {**found, "context_tokens": context, "steps": steps, "fill_s": round(filled - begun, 3)}

    def do_mixed(
        self, batch: int, context: int, chunk: int, warmup: int, steps: int, limit_s: float, seed: int, windows: int = 0
    ) -> dict:
        begun, until = time.perf_counter(), time.perf_counter() + limit_s
        prompt, count = context - warmup - steps // 2, warmup + steps
        with Batch(self, batch, prompt, count, beside=2 * (chunk + 16), until=until) as running:
            filled, tokens = time.perf_counter(), running.mean_tokens() + warmup + steps / 2
            running.names += self.add(count + 1, chunk, 1, seed=row_seed("mixed", batch, context, seed))
            with Budget(self.core.scheduler, batch + chunk), Scheduled(self.core.scheduler) as scheduled:
                found = self.row(warmup, steps, windows, until)
        scheduled.check(Counter({1: batch}) + Counter({chunk: 1}), count)
        return {**found, "context_tokens": round(tokens, 1), "steps": steps, "fill_s": round(filled - begun, 3)}

    def do_trace(self, phase: str, **asked) -> dict:
        """A row of such steps again, cut into `windows` equal traces: what they differ by is the noise of the GPU's time."""
        if not self.cuda:
            raise Refusal("a processor: there is no GPU time")
        return getattr(self, f"do_{phase}")(**asked)

    def row(self, warmup: int, steps: int, windows: int, until: float) -> dict:
        """What is told of `steps` steps, after `warmup` others. Raises Late; kernels may be built in any of them."""
        self.in_time(warmup, until)
        return self.watched(lambda count: self.in_time(count, until), steps, windows)

    def in_time(self, count: int, until: float) -> list:
        """Seconds of each of `count` steps. Raises Late."""
        step, ends = self.engine.engine_core.get_output, []
        for _ in range(count + 1):
            ends.append(time.perf_counter())
            if ends[-1] > until:
                raise Late(f"the time was over after {len(ends) - 1} steps")
            if len(ends) <= count:
                step()
        return [end - begun for begun, end in itertools.pairwise(ends)]

    def watched(self, take: Callable[[int], list], steps: int, windows: int) -> dict:
        """`take` makes so many steps and tells the seconds of each; with `windows` they are traced and not timed."""
        if not windows:
            return told(take(steps))
        each, found = steps // windows, []
        for _ in range(windows):
            events, wall = trace.traced(lambda: take(each), self.drain)
            found.append(figures.trace_figures(events, each, wall, cuda=True))
        return gpu_told(found)


def told(times: list) -> dict:
    return {"step_ms": figures.quartiles(times), "slowest_ms": round(max(times) * 1000, 4)}


def gpu_told(traces: list) -> dict:
    """Milliseconds a step in which the GPU had work, on average and in the least and the most of the traces.

    None with the reason where one of them is lost.
    """
    lost = [found["gpu_reason"] for found in traces if found["gpu_ms"] is None]
    times = [0.0] if lost else [found["gpu_ms"] for found in traces]
    gpu = {"mean": round(sum(times) / len(times), 4), "low": min(times), "high": max(times)}
    return {"gpu_ms": None if lost else gpu, "gpu_reason": lost[0] if lost else None}


def row_seed(phase: str, batch: int, context: int, seed: int) -> int:
    """Another one for every row, so that no prompt of it is in the prefix cache; above the one that batches have."""
    return 1000 + (((seed * 2 + (phase == "mixed")) * 4096 + batch) << 21) + context


# ---------------------------------------------------------------- steps


class Scheduled:
    """What the scheduler puts into each step while the block runs: tokens of each request."""

    def __init__(self, scheduler):
        self.scheduler, self.steps = scheduler, []

    def __enter__(self) -> Scheduled:
        original, steps = self.scheduler.schedule, self.steps

        def schedule(*args, **kwargs):
            output = original(*args, **kwargs)
            steps.append(output.num_scheduled_tokens)
            return output

        self.scheduler.schedule = schedule  # of this object only
        return self

    def __exit__(self, *_: object) -> None:
        del self.scheduler.schedule

    def check(self, composition: dict, count: int) -> None:
        """Raises Refusal unless all steps, `count` of them, had so many requests (values) of so many tokens (keys)."""
        for step in self.steps:
            if (found := Counter(step.values())) != Counter(composition):
                raise Refusal(f"vLLM made a step of {spelled(found)} where {spelled(composition)} was meant")
        if len(self.steps) != count:
            raise Refusal(f"vLLM made {len(self.steps)} steps where {count} were meant")


def spelled(composition: dict) -> str:
    """`64 x 1 token and 1 x 2048 tokens`."""
    parts = [f"{n} x {tokens} token{'s' * (tokens != 1)}" for tokens, n in sorted(composition.items())]
    return " and ".join(parts[:4] + ["..."] * (len(parts) > 4)) or "nothing"


class Budget:
    """The scheduler gives a step at most so many tokens for the length of the block."""

    def __init__(self, scheduler, tokens: int):
        if not hasattr(scheduler, "max_num_scheduled_tokens"):
            raise Refusal("the scheduler of this vLLM has no budget of tokens that could be set")
        if tokens > scheduler.max_num_scheduled_tokens:
            raise Refusal(f"{tokens:,} tokens are more than the {scheduler.max_num_scheduled_tokens:,} of a step")
        self.scheduler, self.tokens, self.before = scheduler, tokens, scheduler.max_num_scheduled_tokens

    def __enter__(self) -> Budget:
        self.scheduler.max_num_scheduled_tokens = self.tokens
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.max_num_scheduled_tokens = self.before


# ---------------------------------------------------------------- what runs


def attention_of(model) -> list:
    """[{"backend", "flash_attention_version", "prefill_backend", "prompts_as_decode", "layers"}], as the layers themselves say.

    `prompts_as_decode`: with MLA, whole prompts of up to so many tokens are given to the backend itself and not to the one for
    prefill (`reorder_batch_threshold` of its metadata builder: 512 of FLASH_ATTN_MLA, 128 of FLASHMLA, in 0.26).
    """
    found: Counter = Counter()
    for layer in model.modules():
        backend, impl = getattr(layer, "attn_backend", None), getattr(layer, "impl", None)
        if impl is None or not hasattr(backend, "get_name"):
            continue
        name, prefill = backend.get_name(), getattr(layer, "prefill_backend", None)
        version = getattr(impl, "vllm_flash_attn_version", None) if name.startswith("FLASH_ATTN") else None
        named = prefill.get_name() if hasattr(prefill, "get_name") else None
        found[(name, version, named, short_prompts(backend) if named else None)] += 1
    names = ("backend", "flash_attention_version", "prefill_backend", "prompts_as_decode")
    return [{**dict(zip(names, key, strict=True)), "layers": count} for key, count in found.items()]


def short_prompts(backend) -> int | None:
    with contextlib.suppress(Exception):  # nothing is known then
        tokens = backend.get_builder_cls().reorder_batch_threshold
        return tokens if isinstance(tokens, int) and tokens > 1 else None
    return None


def check_flash_attention(version: int | None) -> None:
    """Raises Refusal where this vLLM or GPU lacks the version that was asked for: cheaper than to load the model first."""
    if not version or not stepped.cuda():
        return
    with contextlib.suppress(ImportError, AttributeError):
        interface = importlib.import_module("vllm.vllm_flash_attn.flash_attn_interface")
        if not interface.is_fa_version_supported(version):
            raise Refusal(f"FlashAttention {version}: {interface.fa_version_unsupported_reason(version)}")
    if version == 4:
        check_import("vllm.vllm_flash_attn.cute.interface")


def check_import(module: str) -> None:
    """The Python packages that FlashAttention 4 is compiled with are not needed for anything else."""
    try:
        importlib.import_module(module)
    except Exception as error:
        raise Refusal(f"FlashAttention 4 cannot be imported: {type(error).__name__}: {error}") from None


if __name__ == "__main__":
    stepped.answer_requests(Attention())
