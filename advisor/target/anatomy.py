"""One vLLM engine in this process, whose decode steps and prefills are timed and traced. Runs in the target interpreter.

JSON lines, standard input to standard output, until the input ends; every answer has `ok`, and `error` where that is false:
    {"do": "import"}                                                     what a start imports, ahead of it; may be left out
    {"do": "start", "argv": [what follows `vllm serve`]}                 the engine, its start, what it holds; before all others
    {"do": "decode", "batch", "context", "warmup", "steps", "serial"}    wall time of decode steps, nothing else watching
    {"do": "prefill", "tokens", "repeats"}                               wall time of one prompt of so many tokens
    {"do": "trace", "batch", "context", "warmup", "steps"}               decode steps again, under torch.profiler
    {"do": "trace_prefill", "tokens", "repeats"}
    {"do": "copy"}                                                       bandwidth of a large copy on this device
    {"do": "launch"}                                                     what launching one kernel costs the host
Traces come after all timings: CUPTI, once it is there, stays and slows the host.

A step is one of the engine core's own: schedule, execute, sample, take the tokens back. That is what the engine process of
`vllm serve` does over and over; the API server's work is in another process there and not in these figures. With asynchronous
scheduling (the default on CUDA) the core prepares a step while the GPU runs the one before, so that a step takes as long as
the longer of the two. `serial_ms` is the same loop with the GPU drained after every step, so that neither hides behind the other,
and `host_ms` the part of it before the wait: what the host has to do for a step, measured and not subtracted.

The core is in this process (stepped_engine.py), so that the profiler sees it. Written against vLLM 0.26.0 (CUDA) and 0.32.0
(CPU), KVCacheConfig.kv_cache_groups besides what that file names.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import re
import statistics
import time

PACKED = re.compile(r"qweight|weight_packed")  # of 4-bit layouts: eight values in 32 bits
COPY_BYTES = 1 << 30
CPU_COPY_BYTES = 1 << 28  # far beyond any cache, and small enough for a small machine


def beside(name: str):
    """A file next to this one, by its path: this folder is not searched for modules."""
    spec = importlib.util.spec_from_file_location(
        f"advisor_{name}", os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures, stepped, trace = beside("anatomy_figures"), beside("stepped_engine"), beside("step_trace")
Batch, Refusal, settle = stepped.Batch, stepped.Refusal, stepped.settle


# ---------------------------------------------------------------- requests


class Anatomy(stepped.SteppedEngine):
    """The engine, once started, and the requests about it."""

    def before_loading(self, config) -> None:
        self.text_config = config.model_config.hf_text_config
        self.loaded = watched_loading(self.text_config)

    def after_loading(self, config) -> dict:  # noqa: ARG002
        return {
            "weights": held_weights(self.loaded, weights(self.model(), self.text_config)),
            "kv": kv_groups(self.core.scheduler.kv_cache_config.kv_cache_groups),
        }

    def do_decode(self, batch: int, context: int, warmup: int, steps: int, serial: int) -> dict:
        """Quartiles of `steps` steps; the middle one of them has `context` tokens a request, on average."""
        with Batch(self, batch, context - warmup - steps // 2, warmup + steps + serial) as running:
            running.steps(warmup)
            first = running.mean_tokens()
            times = running.steps(steps)
            middle = (first + running.mean_tokens()) / 2
            slow, work = running.drained(serial) if self.cuda and serial else ([], [])
        return {
            "batch": batch,
            "context_tokens": round(middle, 1),
            "steps": steps,
            "step_ms": figures.quartiles(times),
            "serial_ms": figures.quartiles(slow) if slow else None,
            "host_ms": figures.quartiles(work)
            if work and getattr(self.core, "batch_queue", None) is not None
            else None,
        }

    def do_prefill(self, tokens: int, repeats: int) -> dict:
        """Each prompt is another one, so that nothing of it is cached. The first one is not counted."""
        self.prefill(tokens)
        found = [self.prefill(tokens) for _ in range(repeats)]
        return {"tokens": tokens, "chunks": found[0][1], "step_ms": figures.quartiles([wall for wall, _ in found])}

    def do_trace(self, batch: int, context: int, warmup: int, steps: int) -> dict:
        with Batch(self, batch, context - warmup - steps // 2, warmup + steps) as running:
            running.steps(warmup)
            events, wall = self.traced(lambda: running.steps(steps))
        return {"batch": batch, "steps": steps, **figures.trace_figures(events, steps, wall, self.cuda)}

    def do_trace_prefill(self, tokens: int, repeats: int) -> dict:
        self.prefill(tokens)
        events, wall = self.traced(lambda: [self.prefill(tokens) for _ in range(repeats)])
        return {"tokens": tokens, "repeats": repeats, **figures.trace_figures(events, repeats, wall, self.cuda)}

    def do_copy(self) -> dict:
        return gpu_copy() if self.cuda else cpu_copy()

    def do_launch(self) -> dict:
        if not self.cuda:
            raise Refusal("nothing is launched on a processor")
        return launch_costs()

    def prefill(self, tokens: int) -> tuple:
        """(seconds from the first step to the first token of a prompt, steps that took)."""
        settle(self.core, self.engine)
        names = self.add(1, tokens, 1, seed=None)
        begun, count = time.perf_counter(), 0
        while count < stepped.STEP_LIMIT:
            outputs = self.engine.engine_core.get_output()
            count += 1
            if any(item.new_token_ids for item in outputs.outputs):
                took = time.perf_counter() - begun
                self.forget(names)
                return took, count - bool(getattr(self.core, "batch_queue", None) is not None)
        raise RuntimeError("the prompt was never done")

    def traced(self, work) -> tuple:
        return trace.traced(work, self.drain if self.cuda else None)


# ---------------------------------------------------------------- what is held


def watched_loading(config) -> list:
    """A list that gets the weights as they were loaded, before layers put them into the form that their kernels read."""
    found: list = []
    with contextlib.suppress(ImportError, AttributeError):
        loader = importlib.import_module("vllm.model_executor.model_loader.base_loader")
        process = loader.process_weights_after_loading

        def watched(model, *args, **kwargs):
            found.append(weights(model, config))
            return process(model, *args, **kwargs)

        loader.process_weights_after_loading = watched
    return found


def held_weights(before: list, after: dict) -> dict:
    """`after` loading, unless parameters are gone then: the CPU build keeps packed ones of the same size out of sight."""
    return before[0] if before and after["parameters"] < 0.9 * before[0]["parameters"] else after


def weights(model, config) -> dict:
    """Bytes of the loaded weights, by how a decode step reads them.

    `dense`: all of it, every step. `embedding`: a row for each token, unless the output layer shares it. `experts`: those
    of the experts that the batch's tokens are sent to.
    """
    seen: dict = {}
    experts = 0
    modules = dict(model.named_modules(remove_duplicate=False))  # Qwen3's tied output layer is the embedding once more
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner = modules[name.rpartition(".")[0]]
        kind = weight_kind(name, type(owner).__name__, hasattr(owner, "w13_weight") or hasattr(owner, "w13_qweight"))
        if kind == "experts" and ("w13_weight" in name or "w13_qweight" in name):
            experts = max(experts, parameter.shape[0])
        key = parameter.data_ptr() or id(parameter)
        packed = 8 if PACKED.search(name) and parameter.element_size() == 4 and not parameter.is_floating_point() else 1
        found = seen.setdefault(
            key, [kind, parameter.numel() * parameter.element_size(), parameter.numel() * packed, packed]
        )
        if kind == "dense":  # an output layer that shares the embedding is read whole
            found[0] = kind
    kinds = ("dense", "embedding", "experts")
    sums = {kind: sum(size for known, size, *_ in seen.values() if known == kind) for kind in kinds}
    top_k = next((getattr(config, name) for name in ("num_experts_per_tok", "moe_topk", "top_k_experts")
                  if isinstance(getattr(config, name, None), int)), None)  # fmt: skip
    return {
        **{f"{kind}_bytes": size for kind, size in sums.items()},
        "experts": experts,
        "experts_per_token": top_k if experts else None,
        "parameters": sum(count for _, _, count, _ in seen.values()),
        "weight_bits": 4 if any(packed > 1 for *_, packed in seen.values()) else None,
    }


def weight_kind(name: str, owner: str, is_experts: bool) -> str:
    """`dense`, `embedding` or `experts` for a parameter of a module of the class `owner`."""
    if is_experts:
        return "experts"
    is_output = owner == "ParallelLMHead" or "lm_head" in name
    return "embedding" if "Embedding" in owner and not is_output else "dense"


def kv_groups(groups) -> list:
    """Layers that keep the same for a token: how many, bytes a token in one, and the window that a step looks back."""
    found = []
    for group in groups:
        spec = group.kv_cache_spec
        inner = getattr(spec, "kv_cache_specs", None)  # layers of different sizes in one group
        for one, layers in [(spec, len(group.layer_names))] if not inner else [(item, 1) for item in inner.values()]:
            page = getattr(one, "real_page_size_bytes", None) or one.page_size_bytes
            state = "Mamba" in type(one).__name__
            found.append({
                "layers": layers,
                "kind": type(one).__name__,
                "bytes_per_token": 0 if state else page / one.block_size,
                "window": getattr(one, "sliding_window", None) or getattr(one, "attention_chunk_size", None),
                "state_bytes": page if state else 0,
            })  # fmt: skip
    return found


# ---------------------------------------------------------------- machine


def gpu_copy(repeats: int = 20) -> dict:
    """A copy of 1 GiB within the GPU's memory: bytes read and bytes written both count. Less where so much is not free."""
    import torch

    torch.cuda.empty_cache()
    source, target = two_buffers(torch, (COPY_BYTES, COPY_BYTES // 2, COPY_BYTES // 4))
    times = []
    for _ in range(repeats + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return copy_figures(times[3:], source.numel())


def two_buffers(torch, sizes: tuple):
    """Two of the first of these sizes (bytes) that the GPU has room for: the engine left only a little of its memory."""
    for size in sizes:
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            return [torch.empty(size, dtype=torch.uint8, device="cuda").fill_(1) for _ in range(2)]
    raise Refusal(
        f"the GPU has no room for a copy of {sizes[-1]:,} bytes beside the engine: lower --gpu-memory-utilization"
    )


def cpu_copy(repeats: int = 9) -> dict:
    import torch

    source = torch.ones(CPU_COPY_BYTES, dtype=torch.uint8)
    target = torch.zeros_like(source)
    times = []
    for _ in range(repeats + 2):
        begun = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - begun)
    return copy_figures(times[2:], CPU_COPY_BYTES)


def copy_figures(times: list, size: int) -> dict:
    """10**9 bytes a second, read and written together, of the median copy."""
    quarter, median, most = figures.quantiles(times)
    return {
        "gb_s": round(2 * size / median / 1e9, 1),
        "low_gb_s": round(2 * size / most / 1e9, 1),
        "high_gb_s": round(2 * size / quarter / 1e9, 1),
        "copied_bytes": size,
        "counted_bytes": 2 * size,
        "repeats": len(times),
    }


def launch_costs(launches: int = 2000, repeats: int = 7) -> dict:
    """Microseconds of the host for one kernel, launched one after the other without waiting for any.

    `bare_us`: a kernel of PyTorch's own without arguments to prepare; `op_us`: an addition to one element, through
    PyTorch's dispatcher, which a model without compilation pays for every operation.
    """
    import torch

    one = torch.zeros(1, device="cuda")

    def cost(work) -> float:
        found = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(launches):
                work()
            found.append((time.perf_counter() - begun) / launches)
        torch.cuda.synchronize()
        return round(statistics.median(found) * 1e6, 2)

    gc.collect()
    return {"bare_us": cost(lambda: torch.cuda._sleep(1)), "op_us": cost(lambda: one.add_(1.0)), "launches": launches}


if __name__ == "__main__":
    stepped.answer_requests(Anatomy())
