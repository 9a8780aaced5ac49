"""Our steps through the installed vLLM's own LLMEngine, EngineCore and asynchronous scheduler, without a model (test_engine.py).

`python pipelined_core.py FOLDER_OF_THE_SCRIPTS MODEL`, in the target interpreter. CUDA has asynchronous scheduling by default and
the processor's platform turns it off, so that it is turned on again here; the executor is a stand-in that gives every request whose
prompt is in the cache one token a step. One JSON object for each request on standard output: the request, its answer, and whether
the engine was empty after it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from concurrent.futures import Future
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

LIMITS = ["--max-model-len", "2048", "--max-num-batched-tokens", "2048", "--max-num-seqs", "256"]
TRACE = {"do": "trace", "windows": 2, "limit_s": 60}
REQUESTS = [
    ("anatomy", {"do": "decode", "batch": 1, "context": 200, "warmup": 10, "steps": 20, "serial": 10}),
    ("anatomy", {"do": "decode", "batch": 256, "context": 200, "warmup": 10, "steps": 20, "serial": 10}),
    ("anatomy", {"do": "prefill", "tokens": 2047, "repeats": 3}),
    ("attention", {"do": "decode", "batch": 64, "context": 300, "warmup": 6, "steps": 30, "limit_s": 60}),
    ("attention", {"do": "prefill", "batch": 16, "context": 128, "warmup": 2, "steps": 7, "limit_s": 60, "seed": 0}),
    ("attention", {"do": "prefill", "batch": 1, "context": 2000, "warmup": 2, "steps": 7, "limit_s": 60, "seed": 0}),
    ("attention", {"do": "mixed", "batch": 64, "context": 300, "chunk": 1024, "warmup": 3, "steps": 15, "limit_s": 60, "seed": 0}),
    ("attention", {"do": "mixed", "batch": 64, "context": 300, "chunk": 1024, "warmup": 3, "steps": 15, "limit_s": 60, "seed": 1}),
    ("attention", {**TRACE, "phase": "decode", "batch": 64, "context": 300, "warmup": 3, "steps": 6}),
    ("attention", {**TRACE, "phase": "prefill", "batch": 16, "context": 128, "warmup": 1, "steps": 2, "seed": 4}),
    ("attention", {**TRACE, "phase": "mixed", "batch": 64, "context": 300, "chunk": 1024, "warmup": 2, "steps": 4, "seed": 4}),
    ("attention", {"do": "decode", "batch": 64, "context": 300, "warmup": 6, "steps": 30, "limit_s": 0}),
]  # fmt: skip


class StandIn(Executor):
    """As an executor of one process with an asynchronous runner: execution gives nothing, sampling a future of the tokens."""

    def _init_executor(self):
        self.driver_worker = self
        self.lengths, self.output = {}, None

    def get_model(self):
        return torch.nn.Linear(2, 2)

    def get_kv_cache_specs(self):
        spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
        return [{f"model.layers.{index}.self_attn.attn": spec for index in range(2)}]

    def determine_available_memory(self):
        return [1 << 26]

    def initialize_from_config(self, configs):
        return CompilationTimes(0.0, 0.0)

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False, **more):
        asked = str(method)
        return (
            [["NHD", "HND"]] if "layouts" in asked else [CompilationTimes(0.0, 0.0)] if "compile" in asked else [None]
        )

    def execute_model(self, scheduled, non_block=False):
        for new in scheduled.scheduled_new_reqs:
            self.lengths[new.req_id] = [len(new.prompt_token_ids), new.num_computed_tokens]
        cached = scheduled.scheduled_cached_reqs
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            self.lengths[name][1] = computed
        self.output = scheduled
        return done(None if scheduled.total_num_scheduled_tokens else EMPTY_MODEL_RUNNER_OUTPUT)

    def sample_tokens(self, grammar, non_block=False):
        given = {}
        for name, tokens in self.output.num_scheduled_tokens.items():
            prompt, computed = self.lengths[name]
            given[name] = [7] if computed + tokens >= prompt else []
        indices = {name: index for index, name in enumerate(given)}
        made = ModelRunnerOutput(req_ids=list(given), req_id_to_index=indices, sampled_token_ids=list(given.values()))
        return done(made)

    def check_health(self):
        pass

    @property
    def supported_tasks(self):
        return ("generate",)

    @classmethod
    def supports_async_scheduling(cls):
        return True


def done(value):
    future = Future()
    future.set_result(value)
    return future


def script(folder, name):
    spec = importlib.util.spec_from_file_location(name, Path(folder) / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder, model):
    attention, anatomy = script(folder, "attention"), script(folder, "anatomy")
    config = attention.stepped.engine_config([model, "--load-format", "dummy", *LIMITS])
    config.scheduler_config.async_scheduling = True
    attention.stepped.engine_config = lambda argv: config
    Executor.get_class = staticmethod(lambda config: StandIn)
    engines = {"attention": attention.Attention(), "anatomy": anatomy.Anatomy()}
    one, other = engines.values()
    print(json.dumps({"answer": one.do_start([])}))
    other.engine, other.core, other.vocabulary, other.cuda = one.engine, one.core, one.vocabulary, True
    one.cuda, traced = True, attention.trace.traced
    attention.trace.traced = lambda work, drain: traced(work, None)  # torch refuses to look for a GPU that is not there
    one.drain = other.drain = lambda: None
    for name, request in REQUESTS:
        answer = attention.stepped.answer(engines[name], request)
        empty = not (
            one.core.scheduler.has_requests() or one.core.batch_queue or one.engine.output_processor.request_states
        )
        print(json.dumps({"request": request, "answer": answer, "empty": empty}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
