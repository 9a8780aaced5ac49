"""Lines of a server's log that say that a kernel or graph was compiled or tuned just then.

During the start they are expected. Between the first and the last request of a sample they mean that requests waited for a
compiler: vLLM says of its own warnings that each is a latency spike (vllm/utils/jit_monitor.py; triton_utils/ up to 0.24).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Pattern of a line -> what was at work. Sources: vLLM 0.21 to 0.33 unless said otherwise.
_LINES = {
    # "%s %s during inference: %s": backend (Triton, CuTeDSL, TileLang), event, kernel. From 0.21 on; each kernel once.
    r"\b(\w+) (?:kernel |autotune/warmup candidate )?JIT compilation during inference: ([\w<>-]+(?:\.[\w<>-]+)*)": "{0} kernel {1}",
    # triton/runtime/autotuner.py, printed because vLLM's monitor switches knobs.autotuning.print on.
    r"Triton autotuning for function ([\w.]+),": "Triton autotuning of {0}",
    # vllm/compilation/backends.py, 0.9 to 0.32: "dynamic shape", "shape 8", "compile range (1, 8192)".
    r"Compiling a graph for (.{1,60}?) takes": "a graph for {0}",
    r"Dynamo bytecode transform time": "torch.compile (Dynamo)",
    # torch/_dynamo/convert_frame.py and guards.py (with TORCH_LOGS=recompiles).
    r"torch\._dynamo hit config\.(\w*(?:recompile|cache_size)_limit\w*)": "torch.compile again and again ({0})",
    r"Recompiling function (\w+) in": "torch.compile of {0} again",
    # flashinfer/autotuner.py 0.6; flashinfer/jit/core.py of 0.2 (newer ones build without a word: see COMPILERS).
    r"\[Autotuner\]: Autotuning process starts": "FlashInfer's autotuner",
    r"flashinfer\.jit: (?:Loading|Building) JIT ops: (\w+)": "FlashInfer's {0}",
    # vllm/model_executor/warmup: progress bars of tqdm.
    r"DeepGEMM warmup": "DeepGEMM's warm-up",
    r"Compiling CuTeDSL kernels": "CuTeDSL kernels",
    # tilelang's own logger.
    r"TileLang begins to compile kernel [`'\"]?(\w+)": "TileLang kernel {0}",
}
_PATTERNS = tuple((re.compile(pattern), words) for pattern, words in _LINES.items())
# Programs that build kernels: FlashInfer, DeepGEMM and Triton run them without a line in the log.
COMPILERS = frozenset({"ninja", "nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "hipcc", "clang++", "ptxas-blackwell"})


def compiled(text: str) -> tuple[str, ...]:
    """What was compiled according to a piece of a log, each once, in order. Empty: nothing, as far as the log says."""
    found = (match for line in text.splitlines() if (match := _match(line)))
    return tuple(dict.fromkeys(found))


def compilers(names: Iterable[str]) -> tuple[str, ...]:
    """Compilers among the names of processes, sorted."""
    return tuple(sorted(COMPILERS & set(names)))


def _match(line: str) -> str | None:
    for pattern, words in _PATTERNS:
        if found := pattern.search(line):
            return words.format(*found.groups())
    return None
