"""The scripts of anatomy without vLLM: what a profiler's trace comes to, and which weights a step reads."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from advisor.target import anatomy, anatomy_figures


def event(cat, name, ts, dur, tid=7, ph="X"):
    return {"ph": ph, "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}


def test_overlapping_kernels_count_once():
    assert anatomy_figures.union_us([(0, 10), (5, 10), (30, 5)]) == 20
    assert anatomy_figures.union_us([(0, 100), (10, 5), (20, 5)]) == 100  # wholly inside another one
    assert anatomy_figures.union_us([(10, 5), (0, 10)]) == 15  # touching, out of order
    assert anatomy_figures.union_us([]) == 0


TWO_STREAMS = [
    event("kernel", "gemm", 100, 40, tid=7),
    event("kernel", "gemm", 150, 40, tid=7),
    event("kernel", "attention", 120, 50, tid=20),  # beside both of them: 100 to 190 is covered
    event("gpu_memcpy", "Memcpy DtoH", 300, 10, tid=21),
    event("cuda_runtime", "cudaLaunchKernel", 90, 6, tid=1),
    event("cuda_runtime", "cudaLaunchKernelExC", 96, 4, tid=1),
    event("cuda_driver", "cuLaunchKernelEx", 97, 2, tid=1),  # the runtime's own, told twice
    event("cuda_driver", "cuLaunchKernel", 110, 8, tid=1),  # Triton calls the driver itself
    event("cuda_runtime", "cudaMemcpyAsync", 120, 5, tid=1),
    event("cuda_runtime", "cudaDeviceSynchronize", 130, 300, tid=1),
    event("ac2g", "ac2g", 90, 0, ph="s"),
]


def test_a_step_of_two_streams():
    found = anatomy_figures.trace_figures(TWO_STREAMS, 2, 0.001, cuda=True)
    assert found["traced_ms"] == 0.5
    assert found["gpu_ms"] == pytest.approx((90 + 10) / 1000 / 2)
    assert (found["kernels"], found["copies"]) == (1.5, 0.5)
    assert (found["launches"], found["graph_launches"]) == (1.5, 0)
    assert found["launch_us"] == 6  # of 6, 4 and 8
    assert found["top_kernels"][0] == {"name": "gemm", "ms": 0.04, "count": 1.0}


def test_a_graph_is_one_launch_of_many_kernels():
    kernels = [event("kernel", f"k{index}", 100 + 10 * index, 9) for index in range(20)]
    found = anatomy_figures.trace_figures(
        [event("cuda_runtime", "cudaGraphLaunch", 90, 30, tid=1), *kernels], 1, 0.001, cuda=True
    )
    assert (found["launches"], found["graph_launches"], found["kernels"]) == (1, 1, 20)
    assert found["gpu_ms"] == 0.18
    assert found["graph_launch_us"] == 30


def test_a_profiler_that_does_not_see_into_graphs_is_not_believed():
    found = anatomy_figures.trace_figures(
        [event("cuda_runtime", "cudaGraphLaunch", 90, 30, tid=1), event("gpu_memcpy", "Memcpy DtoH", 300, 10)],
        1,
        0.001,
        cuda=True,
    )
    assert found["gpu_ms"] is None
    assert found["kernels"] is None
    assert "none of their kernels" in found["gpu_reason"]
    assert found["launches"] == 1
    nothing = anatomy_figures.trace_figures([], 1, 0.001, cuda=True)
    assert (nothing["gpu_ms"], nothing["launches"]) == (None, None)
    assert "CUPTI" in nothing["gpu_reason"]


def correlated(cat, name, ts, dur, correlation, tid=7):
    return {**event(cat, name, ts, dur, tid), "args": {"correlation": correlation, "device": 0}}


SAMPLING = [
    correlated("cuda_runtime", "cudaGraphLaunch", 90, 30, 11, tid=1),
    correlated("cuda_runtime", "cudaLaunchKernel", 130, 6, 12, tid=1),
    correlated("cuda_driver", "cuLaunchKernelEx", 140, 6, 13, tid=1),
    correlated("kernel", "argmax", 500, 5, 12),
    correlated("kernel", "_prepare_inputs", 510, 5, 13),
]


def test_kernels_beside_a_graph_do_not_stand_for_those_within_it():
    """Where CUPTI does not see into graphs, sampling alone would be told as the GPU time of the step."""
    blind = anatomy_figures.trace_figures(SAMPLING, 1, 0.001, cuda=True)
    assert (blind["gpu_ms"], blind["kernels"], blind["launches"], blind["graph_launches"]) == (None, None, 3, 1)
    assert "none of their kernels" in blind["gpu_reason"]
    inside = [correlated("kernel", f"gemm{index}", 200 + 100 * index, 100, 11) for index in range(3)]
    seen = anatomy_figures.trace_figures([*SAMPLING, *inside], 1, 0.001, cuda=True)
    assert (seen["gpu_ms"], seen["kernels"], seen["gpu_reason"]) == (0.31, 5, None)


def test_a_processor_has_operators():
    events = [
        event("cpu_op", "aten::linear", 0, 100, tid=1),
        event("cpu_op", "aten::mm", 10, 80, tid=1),
        event("cpu_op", "aten::add", 150, 50, tid=1),
        event("user_annotation", "step", 0, 1000, tid=1),
    ]
    found = anatomy_figures.trace_figures(events, 1, 0.001, cuda=False)
    assert (found["operators"], found["outer_operators"], found["operators_ms"]) == (3, 2, 0.15)
    assert found["gpu_ms"] is None
    assert found["launches"] is None
    assert found["gpu_reason"]


def test_calls_of_another_thread_are_not_within_ours():
    calls = [
        event("cuda_runtime", "cudaLaunchKernel", 0, 10, tid=1),
        event("cuda_driver", "cuLaunchKernel", 2, 3, tid=2),
    ]
    assert len(anatomy_figures.outermost(calls)) == 2


def test_quartiles_are_milliseconds():
    assert anatomy_figures.quartiles([0.001, 0.002, 0.003, 0.004, 0.005]) == {"median": 3.0, "low": 2.0, "high": 4.0}
    assert anatomy_figures.quartiles([0.002]) == {"median": 2.0, "low": 2.0, "high": 2.0}


def test_a_copy_counts_what_is_read_and_what_is_written():
    found = anatomy.copy_figures([0.5, 1.0, 1.0, 2.0], 10**9)
    assert (found["gb_s"], found["counted_bytes"]) == (2.0, 2 * 10**9)
    assert found["low_gb_s"] < found["gb_s"] < found["high_gb_s"]


@pytest.mark.parametrize(
    ("name", "owner", "experts", "kind"),
    [
        ("model.embed_tokens.weight", "VocabParallelEmbedding", False, "embedding"),
        ("lm_head.weight", "ParallelLMHead", False, "dense"),
        ("lm_head.weight", "VocabParallelEmbedding", False, "dense"),  # tied: the embedding read as output layer
        ("model.layers.0.mlp.down_proj.weight", "RowParallelLinear", False, "dense"),
        ("model.layers.0.mlp.experts.w13_weight", "FusedMoE", True, "experts"),
    ],
)
def test_how_a_step_reads_a_weight(name, owner, experts, kind):
    assert anatomy.weight_kind(name, owner, experts) == kind


class Parameter:
    def __init__(self, address, shape, size=2, floating=True):
        self.address, self.shape, self.size, self.floating = address, shape, size, floating

    def data_ptr(self):
        return self.address

    def numel(self):
        return self.shape[0] * self.shape[1]

    def element_size(self):
        return self.size

    def is_floating_point(self):
        return self.floating


def module(name, **attributes):
    return type(name, (), attributes)()


class Model:
    """Names to (module, parameter); a module appears under the name of its parameters' owner.

    As torch.nn.Module does, it leaves out the second name of one that has two, unless it is asked not to.
    """

    def __init__(self, parts):
        self.parts = parts

    def named_modules(self, remove_duplicate=True):
        found = {}
        for name, (owner, _) in self.parts.items():
            if not remove_duplicate or owner not in found.values():
                found[name.rpartition(".")[0]] = owner
        return list(found.items())

    def named_parameters(self, remove_duplicate):
        assert remove_duplicate is False
        return [(name, parameter) for name, (_, parameter) in self.parts.items()]


def test_an_embedding_is_not_read_unless_the_output_layer_is_the_same():
    table, config = Parameter(1, (100, 10)), module("Config")
    parts = {
        "embed.weight": (module("VocabParallelEmbedding"), table),
        "proj.weight": (module("Linear"), Parameter(2, (10, 10))),
    }
    apart = anatomy.weights(Model(parts), config)
    assert (apart["dense_bytes"], apart["embedding_bytes"], apart["parameters"]) == (200, 2000, 1100)
    tied = anatomy.weights(Model({**parts, "lm_head.weight": (module("ParallelLMHead"), table)}), config)
    assert (tied["dense_bytes"], tied["embedding_bytes"], tied["parameters"]) == (2200, 0, 1100)
    same = anatomy.weights(Model({**parts, "lm_head.weight": parts["embed.weight"]}), config)  # one module, as in Qwen3
    assert same == tied


def test_four_bits_are_packed_by_eight():
    parts = {"proj.qweight": (module("Linear"), Parameter(1, (10, 10), 4, floating=False))}
    found = anatomy.weights(Model(parts), module("Config"))
    assert (found["parameters"], found["weight_bits"], found["dense_bytes"]) == (800, 4, 400)
    plain = {"proj.weight": (module("Linear"), Parameter(1, (10, 10), 4))}
    assert anatomy.weights(Model(plain), module("Config"))["weight_bits"] is None


def test_weights_that_a_layer_hides_are_those_that_were_loaded():
    whole, rest, quantized = ({"parameters": count} for count in (1000, 300, 990))
    assert anatomy.held_weights([whole], rest) is whole
    assert anatomy.held_weights([whole], quantized) is quantized
    assert anatomy.held_weights([], rest) is rest


def test_experts_are_told_apart():
    experts = module("FusedMoE", w13_weight=None)
    parts = {
        "mlp.experts.w13_weight": (experts, Parameter(1, (8, 10))),
        "proj.weight": (module("Linear"), Parameter(2, (1, 10))),
    }
    found = anatomy.weights(Model(parts), module("Config", num_experts_per_tok=2))
    assert (found["experts"], found["experts_per_token"], found["experts_bytes"]) == (8, 2, 160)


def test_kv_of_layers_with_and_without_a_window():
    full = module("FullAttentionSpec", page_size_bytes=16 * 4096, block_size=16)
    sliding = module("SlidingWindowSpec", page_size_bytes=16 * 4096, block_size=16, sliding_window=128)
    state = module("MambaSpec", page_size_bytes=5000, block_size=16)
    groups = [module("Group", kv_cache_spec=spec, layer_names=["a", "b"]) for spec in (full, sliding, state)]
    found = anatomy.kv_groups(groups)
    assert [(item["bytes_per_token"], item["window"], item["state_bytes"]) for item in found] == [
        (4096, None, 0), (4096, 128, 0), (0, None, 5000)
    ]  # fmt: skip
    assert [item["layers"] for item in found] == [2, 2, 2]


def test_an_unknown_request_and_a_failing_one_are_answers(capfd):
    engine = anatomy.Anatomy()
    assert anatomy.stepped.answer(engine, {"do": "nothing"})["ok"] is False
    refused = anatomy.stepped.answer(engine, {"do": "prefill", "tokens": 4, "repeats": 1})
    assert (refused["ok"], refused["error_type"]) == (False, "AttributeError")


class Engine:
    """An engine core that gives what it is told to."""

    def __init__(self, counts):
        self.counts = iter(counts)

    def get_output(self):
        ids = [module("Output", request_id=str(index), new_token_ids=[1]) for index in range(next(self.counts))]
        return module("Outputs", outputs=ids)


def batch_of(size, counts):
    """A Batch that decodes already."""
    running = object.__new__(anatomy.Batch)
    running.size, running.prompt, running.produced = size, 10, {str(index): 1 for index in range(size)}
    running.owner = module("Owner", engine=module("LLMEngine", engine_core=Engine(counts)), drain=lambda self: None)
    return running


def test_steps_of_the_whole_batch_are_timed_and_counted():
    running = batch_of(4, [4, 4, 4, 4, 4])
    assert len(running.steps(3)) == 3
    assert running.mean_tokens() == 14
    whole, work = running.drained(2)
    assert len(whole) == len(work) == 2
    assert all(part <= step for part, step in zip(work, whole, strict=True))


def test_a_step_that_was_none_of_the_whole_batch_is_refused():
    with pytest.raises(anatomy.Refusal, match="gave 3 tokens where 4"):
        batch_of(4, [4, 3, 4]).steps(3)


class PipelinedCore:
    """As vLLM's core with asynchronous scheduling behaves: a call launches a step and takes back the one before."""

    def __init__(self):
        self.waiting, self.running, self.batch_queue, self.scheduler = {}, {}, [], self

    def has_requests(self):
        return bool(self.waiting or self.running)

    def get_output(self):
        if self.has_requests():
            step = []
            for name in list(self.running):  # a request at its last token is not scheduled again
                if self.running[name] > 0:
                    self.running[name] -= 1
                    step.append(name)
            for name, (chunks, tokens) in list(self.waiting.items())[:1]:  # one prompt a step
                self.waiting[name] = (chunks - 1, tokens)
                if chunks == 1:
                    del self.waiting[name]
                    self.running[name] = tokens - 1
                    step.append(name)
            self.batch_queue.append(step)
            if len(self.batch_queue) < 2:
                return module("Outputs", outputs=[])
        done = self.batch_queue.pop(0)
        return module("Outputs", outputs=[module("Output", request_id=name, new_token_ids=[1]) for name in done])

    def abort(self, names):
        for name in names:
            self.waiting.pop(name, None)
            self.running.pop(name, None)


@pytest.fixture
def pipelined(monkeypatch):
    """An Anatomy with such a core; prompts are prefilled 64 tokens a step."""
    found = anatomy.Anatomy()
    core = found.core = PipelinedCore()
    model, cache = module("ModelConfig", max_model_len=4096), module("CacheConfig", num_gpu_blocks=100, block_size=16)

    class LLMEngine:
        engine_core = core
        vllm_config = module("VllmConfig", model_config=model, cache_config=cache)

        def abort_request(self, names, internal=False):
            assert internal
            core.abort(names)

    def add(count, tokens, new_tokens, seed):
        names = [f"{index}" for index in range(count)]
        core.waiting.update(dict.fromkeys(names, (-(-tokens // 64), new_tokens)))
        return names

    found.engine, found.cuda = LLMEngine(), True
    monkeypatch.setattr(found, "add", add)
    monkeypatch.setattr(found, "drain", lambda: None)
    return found


def is_empty(core):
    return not core.has_requests() and not core.batch_queue


def test_a_pipelined_core_decodes_one_token_of_each_a_step(pipelined):
    found = pipelined.do_decode(batch=4, context=100, warmup=4, steps=20, serial=5)
    assert found["context_tokens"] == pytest.approx(
        100, abs=5
    )  # the first ones have decoded while the last was prefilled
    assert found["serial_ms"]
    assert found["host_ms"]
    assert is_empty(pipelined.core)


def test_a_core_that_waits_for_the_gpu_tells_nothing_of_the_host(pipelined):
    pipelined.core.batch_queue = None
    pipelined.engine.engine_core = Engine([4] * 100)
    pipelined.core.scheduler = module("Scheduler", has_requests=lambda self: False)
    found = pipelined.do_decode(batch=4, context=100, warmup=4, steps=20, serial=5)
    assert found["serial_ms"]
    assert found["host_ms"] is None


def test_the_steps_of_a_prefill_are_its_chunks(pipelined):
    assert pipelined.do_prefill(tokens=64, repeats=2)["chunks"] == 1
    assert pipelined.do_prefill(tokens=150, repeats=2)["chunks"] == 3
    assert is_empty(pipelined.core)


def test_a_batch_that_does_not_fit_is_refused_before_it_is_begun(pipelined):
    with pytest.raises(anatomy.Refusal, match="the KV cache holds 1,600 tokens"):
        pipelined.do_decode(batch=40, context=100, warmup=4, steps=20, serial=5)
    with pytest.raises(anatomy.Refusal, match="model length of 4096"):
        pipelined.do_decode(batch=1, context=4096, warmup=4, steps=20, serial=5)
    assert is_empty(pipelined.core)


def test_several_gpus_are_refused(monkeypatch):
    config = module("VllmConfig", parallel_config=module("ParallelConfig", world_size=2))
    monkeypatch.setattr(anatomy.stepped, "engine_config", lambda argv: config)
    with pytest.raises(anatomy.Refusal, match="one GPU"):
        anatomy.Anatomy().do_start(["m"])


def test_a_copy_is_smaller_where_the_gpu_is_full():
    class Torch:
        uint8 = "uint8"

        class cuda:
            class OutOfMemoryError(Exception):
                pass

        @classmethod
        def empty(cls, size, dtype, device):
            if size > 100:
                raise cls.cuda.OutOfMemoryError
            return module("Tensor", size=size, fill_=lambda self, value: self)

    assert [buffer.size for buffer in anatomy.two_buffers(Torch, (400, 200, 100))] == [100, 100]
    with pytest.raises(anatomy.Refusal, match="no room for a copy of 200 bytes"):
        anatomy.two_buffers(Torch, (400, 200))


def test_waiting_for_its_turn_is_no_part_of_a_start(monkeypatch):
    """Imports ahead: what passes between them and the request to start counts nowhere."""
    now = [0.0]
    model = SimpleNamespace(get_vocab_size=lambda: 9)
    parallel, cache = SimpleNamespace(world_size=1), SimpleNamespace()

    def configured(argv):
        now[0] += 3
        return SimpleNamespace(parallel_config=parallel, model_config=model, cache_config=cache)

    def loaded(*_, **__):
        now[0] += 20
        return SimpleNamespace(engine_core=SimpleNamespace(engine_core=SimpleNamespace()))

    def imported(name):
        now[0] += 10 if name.startswith("vllm.") else 0
        return SimpleNamespace(get_num_threads=lambda: 8)

    usage = SimpleNamespace(UsageContext=SimpleNamespace(OPENAI_API_SERVER="server"))
    monkeypatch.setitem(sys.modules, "vllm.usage.usage_lib", usage)
    engine_class = SimpleNamespace(from_vllm_config=loaded)
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.llm_engine", SimpleNamespace(LLMEngine=engine_class))
    stepped = anatomy.stepped
    monkeypatch.setattr(stepped, "engine_config", configured)
    monkeypatch.setattr(stepped, "cuda", lambda: True)
    monkeypatch.setattr(stepped, "described", lambda config: {})
    monkeypatch.setattr(stepped, "BEGUN", 0.0)
    monkeypatch.setattr(stepped, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(stepped, "importlib", SimpleNamespace(import_module=imported))
    engine = stepped.SteppedEngine()
    assert engine.do_import() == {}
    now[0] += 100
    started = engine.do_start([])
    assert (started["imports_s"], started["engine_s"], started["start_s"]) == (33, 20, 53)


def test_an_engine_waits_for_the_memory_of_the_one_before_it(monkeypatch):
    """vLLM refuses to start where its share is not free at once; where it never is, vLLM's own refusal is what is told."""
    stepped, slept = anatomy.stepped, []
    free = iter([10, 50, 93, 0])
    memory = SimpleNamespace(cuda=SimpleNamespace(mem_get_info=lambda: (next(free, 0), 100)))
    monkeypatch.setattr(stepped, "importlib", SimpleNamespace(import_module=lambda name: memory))
    monkeypatch.setattr(stepped, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(stepped, "cuda", lambda: True)
    assert stepped.until_released(SimpleNamespace(gpu_memory_utilization=0.92)) == sum(slept) == 1.0
    assert stepped.until_released(SimpleNamespace(gpu_memory_utilization=0.92)) == stepped.RELEASE_S
    monkeypatch.setattr(stepped, "cuda", lambda: False)
    assert stepped.until_released(SimpleNamespace(gpu_memory_utilization=0.92)) == 0.0
