"""What inspection found: GPU, installed vLLM, model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GpuFacts:
    """What NVML says about the GPU to tune for; `kind` is `cpu` where vLLM will run on the processor."""

    kind: str  # "cuda", "rocm" or "cpu"
    name: str  # as the driver prints it, e.g. "NVIDIA H200"; the processor's model on a CPU
    slug: str  # short name for folders: "h200", "rtx4090", "cpu"
    count: int
    memory_gib: float
    compute_capability: str | None = None  # "9.0"
    driver: str | None = None
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackendFacts:
    """One attention backend and why the installed vLLM would refuse it for this model and GPU (empty: it is valid)."""

    name: str
    reasons: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class EngineFacts:
    """The installed vLLM, as it describes itself from inside the target interpreter."""

    python: str  # path of the target interpreter
    python_version: str
    vllm_version: str  # "0.26.0", without a local suffix such as +cpu
    torch_version: str
    platform: str  # "cuda", "rocm" or "cpu": what this vLLM build would run on here
    cuda_version: str | None = None
    flashinfer_version: str | None = None
    flags: tuple[str, ...] = ()  # long option names of `vllm serve`, "--max-num-seqs"
    backends: tuple[BackendFacts, ...] = ()  # valid ones first, in vLLM's order of preference
    backends_error: str | None = None  # why vLLM could not be asked; then `backends` is empty
    # Why versions of FlashAttention cannot run here ("4" -> a reason); those that are not named may.
    flash_attention_refusals: Mapping[str, str] = field(default_factory=dict)
    import_s: float = 0.0  # seconds that it took to be imported for this description


@dataclass(frozen=True)
class ModelFacts:
    """What the model's config.json says."""

    model: str  # as the person gave it: folder or hub id
    architecture: str
    config_hash: str  # sha256 of the canonical config, 16 hex digits
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    max_length: int  # tokens, before any --max-model-len
    dtype: str | None = None
    quantization: str | None = None
    experts: int = 0
    mla: bool = False
    sparse: bool = False  # MLA that attends to the tokens an index chooses, as in DeepSeek-V3.2
    recurrent: str | None = None  # layers with a state, alone or beside attention: mamba, gated-delta, linear, short-conv
    encoder_decoder: bool = False
    has_weights: bool = True  # False: the folder holds no weights, only --load-format dummy can serve it
    revision: str | None = None  # commit of a hub model


@dataclass(frozen=True)
class FirstFacts:
    """What is known before the installed vLLM has been asked, which takes its imports. It may find another length of the model."""

    gpu: GpuFacts
    model: ModelFacts


@dataclass(frozen=True)
class Facts:
    gpu: GpuFacts
    engine: EngineFacts
    model: ModelFacts
