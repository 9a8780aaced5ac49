"""What the tests of the command share: a machine, a vLLM that answers, and engines that measure what a script says."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from advisor.attention import run as running
from advisor.records import BackendFacts, EngineFacts, Facts, GpuFacts, ModelFacts
from advisor.target_process import TargetDied, TargetTimeout

RESOLVED = {
    "max_num_seqs": 256, "max_num_batched_tokens": 8192, "max_model_len": 32768, "tensor_parallel_size": 1,
    "attention_backend": None, "dtype": "bfloat16",
}  # fmt: skip
STARTED = {
    "ok": True, "imports_s": 20.0, "engine_s": 30.0, "start_s": 50.0, "pipelined": True, "threads": 8,
    "compilation_mode": "VLLM_COMPILE", "cudagraph_mode": "FULL_AND_PIECEWISE", "capture_sizes": [1, 2, 4], "max_num_seqs": 256,
    "max_num_batched_tokens": 8192, "max_model_len": 32768, "dtype": "bfloat16", "kv_cache_dtype": "auto",
    "prefix_caching": True, "kv_tokens": 800_000,
}  # fmt: skip
NOT_CONSIDERED = "not among the backends vLLM considers for this model and GPU"
CUDA = (
    BackendFacts("FLASH_ATTN"), BackendFacts("FLASHINFER"), BackendFacts("TRITON_ATTN"), BackendFacts("FLEX_ATTENTION"),
    BackendFacts("TURBOQUANT", ("kv_cache_dtype not supported",)), BackendFacts("CPU_ATTN", (NOT_CONSIDERED,)),
)  # fmt: skip
CPU = (BackendFacts("CPU_ATTN"), BackendFacts("FLASH_ATTN", ("vLLM would silently run CPU_ATTN instead",)))
MLA = tuple(BackendFacts(name) for name in ("FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"))


def facts(backends=CUDA, capability="9.0", weights=True, error=None, refusals=()):
    gpu = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.0, capability, "580") if capability else GpuFacts(
        "cpu", "a processor", "cpu", 1, 24.0
    )  # fmt: skip
    return Facts(
        gpu,
        EngineFacts(
            "/e/python",
            "3.12.0",
            "0.26.0",
            "2.11.0",
            gpu.kind,
            backends=backends,
            backends_error=error,
            flash_attention_refusals=dict(refusals),
        ),
        ModelFacts(
            "/models/Small",
            "LlamaForCausalLM",
            "abc",
            10,
            64,
            4,
            4,
            128,
            1000,
            4096,
            mla=backends is MLA,
            has_weights=weights,
        ),
    )


def install(monkeypatch, tmp_path, found=None):
    """The command in a folder of its own, with scripted engines; returns their class to say what they do."""
    monkeypatch.chdir(tmp_path)  # logs go into runs/
    own = next((one.name for one in (found or facts()).engine.backends if one.valid), "DEFAULT")
    own = "FLASH_ATTN-3" if own == "FLASH_ATTN" else own
    engines = type("Engines", (Engine,), {"asked": [], "order": [], "steps": {}, "script": {}, "traced": [], "gpu": {}, "own": own})
    monkeypatch.setattr("advisor.attention.measure.TargetProcess", engines)
    monkeypatch.setattr(running, "Resolution", Resolution)
    monkeypatch.setattr(running, "inspected", lambda *_: found or facts())
    return engines


class Resolution:
    def __init__(self, python, model, env):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def resolve(self, arguments, env):
        return {"ok": True, "resolved": RESOLVED}


class Clock:
    """Stands still unless an engine takes time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Engine:
    """Stands in for TargetProcess.

    `steps`: (arm or None, phase, batch or None) -> factor on the milliseconds of a step. `script`: (arm, request) -> what happens
    there: an exception that is raised, or an answer. `traced` and `gpu`: as `asked` and `steps`, of traces and GPU times.
    """

    asked: ClassVar[list] = []
    own: ClassVar[str] = ""  # vLLM's choice, whose process is called otherwise
    order: ClassVar[list] = []  # of all engines, imports and ends too
    steps: ClassVar[dict] = {}
    traced: ClassVar[list] = []
    gpu: ClassVar[dict] = {}
    trace_s: ClassVar[float] = 0.0
    script: ClassVar[dict] = {}
    clock: ClassVar[Clock] = Clock()
    start_s: ClassVar[float] = 0.0
    cell_s: ClassVar[float] = 0.0
    runs: ClassVar[dict] = {}  # arm -> what its layers say instead

    def __init__(self, python, script, env, log):
        assert (script, env["VLLM_ENABLE_V1_MULTIPROCESSING"]) == ("attention", "0")
        self.log, self.arm = Path(log), self.own if Path(log).stem == "default" else Path(log).stem

    def __enter__(self):
        self.log.write_text(
            "INFO 11-29 10:00:25 [cuda.py:482] Using FLASH_ATTN attention backend out of potential backends: []\n"
        )
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.order.append((self.arm, "closed"))

    def send(self, request):
        self.order.append((self.arm, request["do"]))

    def speaks(self, timeout_s):
        self.order.append((self.arm, "waited for"))
        return True

    def receive(self, timeout_s):
        if isinstance(happens := self.script.get((self.arm, "import")), Exception):
            raise happens
        return {"ok": True}

    def request(self, request, timeout_s):
        what = request["do"]
        if what == "trace":
            return self.trace(request)
        self.asked.append((self.arm, what, request.get("batch"), request.get("context"), request.get("seed")))
        self.order.append((self.arm, what))
        happens = self.script.get((self.arm, what)) or self.script.get((self.arm, what, request.get("batch")))
        self.clock.now += self.start_s if what == "start" else self.cell_s
        if isinstance(happens, Exception):
            raise happens
        if happens is not None:
            return happens
        return self.start(request) if what == "start" else self.measured(request)

    def trace(self, request):
        phase, batch = request["phase"], request["batch"]
        self.traced.append((self.arm, phase, batch, request["context"], request.get("seed")))
        self.order.append((self.arm, "trace"))
        happens = self.script.get((self.arm, "trace"), self.script.get((self.arm, "trace", phase, batch)))
        self.clock.now += self.trace_s
        if isinstance(happens, Exception):
            raise happens
        if happens is not None:
            return happens
        factor = self.gpu.get((self.arm, phase, batch), self.gpu.get((self.arm, phase, None), 1.0))
        gpu = {"mean": 2 * factor, "low": 1.99 * factor, "high": 2.01 * factor}
        return {"ok": True, "gpu_ms": gpu, "gpu_reason": None, "context_tokens": 512, "steps": 4, "fill_s": 0.1}

    def start(self, request):
        assert request["argv"][0] == "/models/Small"
        self.argv = request["argv"]
        backend, _, version = self.arm.partition("-")
        layer = {
            "backend": backend,
            "flash_attention_version": int(version) if version else None,
            "prefill_backend": None,
        }
        return {**STARTED, "attention": self.runs.get(self.arm, [{**layer, "layers": 10}])}

    def measured(self, request):
        phase, batch, context = request["do"], request["batch"], request["context"]
        factor = self.steps.get((self.arm, phase, batch), self.steps.get((self.arm, phase, None), 1.0))
        step = (5 + batch * context / 20_000) * factor * (1.004 if request.get("seed") else 1.0)
        three = {"median": step, "low": step * 0.995, "high": step * 1.005}
        return {
            "ok": True,
            "step_ms": three,
            "slowest_ms": step * 1.1,
            "context_tokens": context,
            "steps": 9,
            "fill_s": 0.1,
        }


def died():
    return TargetDied("attention.py in /e/python ended by signal -11 without an answer")


def silent():
    return TargetTimeout("attention.py in /e/python gave no answer within 60 s")
