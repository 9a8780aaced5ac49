"""What imports ask of the GPU, answered without starting CUDA in the launcher. Loaded by warm_serve.py, imports none of ours.

Two imports of vLLM's compiler ask, and either would make CUDA start in the launcher, from which nothing could be forked then
(FlashInfer 0.6.14):

- compilation_context.py, for the architecture, unless a variable names it. NVML knows it.
- gdn_kernels/gdn_decode_bf16_state.py, for the number of multiprocessors and again the architecture, where NVIDIA's CuTe DSL is
  installed, as it is with each vLLM from 0.26 on. NVML does not know the first, so a child is forked that asks CUDA and ends.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import sys
import types

ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"
CHILD_S = 60.0  # CUDA starts in one or two seconds
_ASKED = ("get_device_properties", "get_device_capability", "get_device_name")  # of torch.cuda


@contextlib.contextmanager
def told(platform: str):
    """For the length of the imports: the variable is set, and what torch is asked of the GPU comes from a child."""
    with flashinfer_told_the_gpu(platform), torch_asks_in_a_child(platform):
        yield


# ---------------------------------------------------------------- NVML


@contextlib.contextmanager
def flashinfer_told_the_gpu(platform: str):
    """Sets the variable to what FlashInfer would find. It is gone again for the servers, and a person's own one stays."""
    found = capabilities_by_nvml() if platform == "cuda" and ARCH_LIST not in os.environ else []
    if not found:
        yield
        return
    os.environ[ARCH_LIST] = " ".join(found)
    try:
        yield
    finally:
        del os.environ[ARCH_LIST]


def capabilities_by_nvml() -> list[str]:
    """`major.minor` of the visible GPUs, each once; [] where vLLM would ask CUDA itself, or has no word for their number."""
    from vllm.platforms import current_platform

    if not type(current_platform).__name__.startswith("Nvml"):
        return []
    try:
        pairs = {
            tuple(current_platform.get_device_capability(number)) for number in range(current_platform.device_count())
        }
    except Exception:
        return []
    return [f"{major}.{minor}" for major, minor in sorted(pairs)]


# ---------------------------------------------------------------- a child


@contextlib.contextmanager
def torch_asks_in_a_child(platform: str):
    """Functions of torch.cuda that start CUDA only to tell of a GPU ask in a child meanwhile.

    Whoever took one of them over by name has it for good: afterwards, and where no child can tell, they do what they always did.
    """
    torch = sys.modules.get("torch")
    if platform != "cuda" or torch is None:
        yield
        return
    cuda, open_ = torch.cuda, [True]
    kept = {name: getattr(cuda, name) for name in _ASKED if hasattr(cuda, name)}
    answers: dict[str, types.SimpleNamespace | None] = {}

    def properties(device):
        if str(device) not in answers:
            answers[str(device)] = ask_child(lambda: plain(kept["get_device_properties"](device)))
        return answers[str(device)]

    def standing_in(name):
        @functools.wraps(kept[name])
        def asked(device=None):
            if not open_[0] or cuda.is_initialized() or (found := properties(device)) is None:
                return kept[name](device)
            return picked(name, found)

        return asked

    for name in kept:
        setattr(cuda, name, standing_in(name))
    try:
        yield
    finally:
        open_[0] = False
        for name, original in kept.items():
            setattr(cuda, name, original)


def picked(name: str, found: types.SimpleNamespace):
    if name == "get_device_capability":
        return found.major, found.minor
    return found.name if name == "get_device_name" else found


def plain(properties: object) -> dict:
    """The figures and names of a C++ object."""
    values = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str))}


def ask_child(question) -> types.SimpleNamespace | None:
    """What `question` answers in a forked child; None where it fails, or takes longer than CHILD_S."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            os.write(writer, json.dumps(question()).encode())
            os.close(writer)
        os._exit(0)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as pipe:
            told = pipe.read() if select.select([pipe], [], [], CHILD_S)[0] else b""
    finally:
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)  # it has said what it had to say: CUDA's own end takes time
            os.waitpid(pid, 0)
    return types.SimpleNamespace(**json.loads(told)) if told else None
