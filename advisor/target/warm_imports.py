"""What a launcher imports for its servers, and what stands against a fork. Loaded by warm_serve.py, imports none of ours."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Callable

# What API server and engine import in any case, in an order that brings the large ones first. What this release has not is
# passed over.
ESSENTIAL = ("vllm", "torch", "vllm.entrypoints.cli.serve", "vllm.v1.engine.core", "vllm.v1.engine.async_llm")
# The CPU worker replaces functions of torch and of vLLM, which others must not have imported by name before.
FIRST = {"cpu": ("vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker")}
COMMON = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.cli.openai",
    "vllm.entrypoints.cli.launch",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.entrypoints.cli.collect_env",
    "vllm.entrypoints.cli.download_kernels",
    "vllm.entrypoints.cli.preload",
    "vllm.entrypoints.cli.run_batch",
    "vllm.entrypoints.cli.snapshot",
    "vllm.v1.engine.core_client",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.core.sched.async_scheduler",
    "vllm.compilation.backends",
    "vllm.compilation.decorators",
    "vllm.compilation.cuda_graph",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.model_loader.default_loader",
    "vllm.model_executor.model_loader.dummy_loader",
    "vllm.model_executor.warmup.kernel_warmup",
    "vllm.utils.jit_monitor",
    "vllm.renderers.hf",
    "vllm.entrypoints.openai.completion.api_router",
    "vllm.entrypoints.openai.chat_completion.api_router",
    "vllm.tokenizers.registry",
    "transformers.models.auto.tokenization_auto",
)
BY_PLATFORM = {
    "cuda": (
        "vllm.v1.worker.gpu_worker",
        "vllm.v1.worker.gpu_model_runner",
        "vllm.v1.worker.gpu.model_runner",
        "vllm.v1.attention.backends.flash_attn",
        "vllm.v1.attention.backends.triton_attn",
        "vllm.v1.attention.backends.flex_attention",
        "flashinfer.sampling",
        "vllm.v1.attention.backends.flashinfer",
    ),
    "cpu": ("vllm.v1.attention.backends.cpu_attn",),
}


class Unfit(Exception):
    """Nothing can be forked from this process. `module`: whose import is to blame."""

    def __init__(self, why: str, module: str | None = None):
        super().__init__(why)
        self.module = module


class EnvironmentUse:
    """Records the names of environment variables that Python code reads, sets or deletes while the block runs."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __enter__(self) -> EnvironmentUse:
        kind, names = type(os.environ), self.names
        self.before = dict(os.environ)
        self._kept = {name: getattr(kind, name) for name in ("__getitem__", "__setitem__", "__delitem__")}

        def recorded(original):
            def method(env, key, *value):
                names.add(os.fsdecode(key))
                return original(env, key, *value)

            return method

        for name, original in self._kept.items():
            setattr(kind, name, recorded(original))
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name, original in self._kept.items():
            setattr(type(os.environ), name, original)
        self.changes = {name: value for name, value in os.environ.items() if self.before.get(name) != value}


def import_all(
    architecture: str | None,
    left_out: list[str],
    is_over: Callable[[], bool],
    told_the_gpu: Callable[[str], contextlib.AbstractContextManager[None]],
) -> list[str]:
    """Import what servers need, one module after the other; returns what failed, as `module: error`. Raises Unfit.

    `is_over`: asked before each, whether there is nobody left to import for. `told_the_gpu`: given the platform, lets imports ask
    for the GPU without starting CUDA (warm_gpu.py).
    """
    failed: list[str] = []
    import_some(ESSENTIAL[:2], left_out, failed, is_over)
    platform = platform_name() if not failed else ""
    with told_the_gpu(platform):
        import_some((*FIRST.get(platform, ()), *ESSENTIAL[2:]), left_out, failed, is_over)
        if failed:
            raise Unfit(f"vLLM cannot be imported: {failed[0]}")
        import_some(COMMON, left_out, failed, is_over)
        import_some((*BY_PLATFORM.get(platform, ()), *model_modules(architecture)), left_out, failed, is_over)
    return failed


def import_some(names, left_out: list[str], failed: list[str], is_over: Callable[[], bool]) -> None:
    for name in names:
        if name in left_out or is_over():
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if name in ESSENTIAL or not name.startswith(error.name or "?"):
                failed.append(f"{name}: {error}")  # not only that this release has no such module
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
        if why := against_a_fork() or child_process():
            raise Unfit(f"importing {name} {why}", name)


def platform_name() -> str:
    """cuda, cpu, rocm ...: what this vLLM runs on here. Raises Unfit where it does not say."""
    try:
        from vllm.platforms import current_platform

        return current_platform._enum.name.lower()
    except Exception as error:
        raise Unfit(f"vLLM cannot be imported: {type(error).__name__}: {error}") from None


def model_modules(architecture: str | None) -> list[str]:
    """Where the registry says that the model's code is."""
    try:
        from vllm.model_executor.models import ModelRegistry

        return [ModelRegistry.models[architecture].module_name]
    except (ImportError, AttributeError, KeyError):
        return []


# ---------------------------------------------------------------- what stands against a fork


def against_a_fork() -> str | None:
    """The rest of a sentence that begins with who did it; None where a fork is safe."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "initialised CUDA"
    if driver_in_use() and not driver_starts_in_a_fork():
        return "started the CUDA driver"
    if threads := [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]:
        return f"started a thread ({threads[0]})"
    return None


def driver_in_use() -> bool:
    """Whether the device file that CUDA uses, and NVML does not, is open."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/nvidia-uvm"):
                return True
    return False


def driver_starts_in_a_fork() -> bool:
    """The driver itself is asked, in a child: where its parent had it running, it refuses to start."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = min(ctypes.CDLL("libcuda.so.1").cuInit(0), 255)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def child_process() -> str | None:
    """An import that started a process keeps pipes to it, which a fork would share. Later on, guards are children too."""
    found = children()
    return f"started a process ({found[0]})" if found else None


def children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            found += map(int, file.read().split())
    return found
