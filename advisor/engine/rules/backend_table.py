"""What each attention backend of vLLM needs and can do, per version: data only, read by legality.py.

How to extend: a new backend is one more entry of BACKENDS. A value that changed is a history, written oldest first as
`since(((0, 9, 0), old), ((0, 24, 0), new))`: the last pair at or below a version counts. Facts are read from the backend classes of
the 28 releases in versions.py (`supports_*`, `supported_*`, `_cudagraph_support`); before 0.11.2 the classes do not state
their needs, so the values of 0.11.2 stand for the older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Version = tuple[int, ...]
History = tuple[tuple[Version, Any], ...]

ALWAYS = "ALWAYS"  # any batch fits a full graph
UNIFORM_BATCH = "UNIFORM_BATCH"  # batches of equal query lengths, so also speculative decoding
SINGLE_TOKEN = "UNIFORM_SINGLE_TOKEN_DECODE"  # one token a sequence only
NEVER = "NEVER"
UNKNOWN = "UNKNOWN"  # not in the table: nobody may conclude anything from it

_FIRST = (0, 9, 0)


def since(*pairs: tuple[Version, Any]) -> History:
    return pairs


def fixed(value: Any) -> History:
    return ((_FIRST, value),)


def at(history: History, version: Version) -> Any:
    """The value that a history has in `version`; None before its first entry."""
    return next((value for start, value in reversed(history) if start <= version), None)


@dataclass(frozen=True)
class Heads:
    """Head sizes that fit. Sizes above `up_to` fit up to `large_up_to` on GPUs of the `large_on` major capabilities."""

    one_of: tuple[int, ...] = ()
    multiple_of: int = 1
    at_least: int = 1
    up_to: int | None = None
    large_up_to: int | None = None
    large_on: tuple[int, ...] = ()


def kv_cache(*extra: str) -> History:
    """KV-cache types: the unquantised ones, whose names vLLM let in over time, and `extra`."""
    return since(
        (_FIRST, ("auto", *extra)),
        ((0, 15, 1), ("auto", "bfloat16", *extra)),
        ((0, 18, 1), ("auto", "float16", "bfloat16", *extra)),
    )


FP8 = ("fp8", "fp8_e4m3")
FP8_BOTH = ("fp8", "fp8_e4m3", "fp8_e5m2")
HALF = ("float16", "bfloat16")
ALL_FLOATS = ("float16", "bfloat16", "float32")


_ANY = fixed((None, None))
_ANY_HEAD = fixed(Heads())
_NO_SINKS = fixed(())
_ANY_BLOCK = fixed(())
_UNQUANTISED = kv_cache()
_NOT_KNOWN = fixed(UNKNOWN)
# MLA kernels see the latent vector: its rank and the rotary part together, 576 in DeepSeek's models.
_MLA_HEADS = since(
    ((0, 9, 0), Heads(one_of=(576,))),
    ((0, 20, 2), Heads(one_of=(320, 576))),
    ((0, 30, 0), Heads(one_of=(320, 512, 576))),
)


@dataclass(frozen=True)
class Backend:
    """One backend. Capabilities are (lowest, highest) pairs, both included; None is no bound."""

    available: tuple[Version, Version | None] = (_FIRST, None)  # from, and the first release that no longer has it
    capability: History = _ANY
    dtypes: tuple[str, ...] = HALF
    kv: History = _UNQUANTISED
    kv_on: Mapping[str, History] | None = (
        None  # KV-cache type -> major capabilities on which it works, where not on all
    )
    blocks: History = _ANY_BLOCK  # the kernel's block sizes: a block size must be a multiple of one; empty: any
    exact_blocks_until: Version | None = None  # before this release a block size had to equal one of them
    heads: History = _ANY_HEAD
    sinks: History = _NO_SINKS  # major capabilities with attention sinks; None: all of them
    graphs: History = _NOT_KNOWN
    mla: bool = False
    sparse: bool = False
    platform: str = "cuda"
    package: str | None = None  # an optional package that must be installed besides


_FLASH_FP8 = since(
    ((0, 9, 0), (9,)),  # FlashAttention 3 only
    ((0, 27, 1), (9, 10)),  # FlashAttention 4 as well
)

BACKENDS: dict[str, Backend] = {
    "FLASH_ATTN": Backend(
        capability=fixed(((8, 0), None)),
        kv=since(
            ((0, 9, 0), ("auto", *FP8_BOTH)),
            ((0, 15, 1), ("auto", "bfloat16", *FP8_BOTH)),
            ((0, 18, 1), ("auto", "float16", "bfloat16", *FP8_BOTH)),
            ((0, 22, 1), ("auto", "float16", "bfloat16", *FP8)),
        ),
        kv_on={"fp8": _FLASH_FP8, "fp8_e4m3": _FLASH_FP8, "fp8_e5m2": _FLASH_FP8},
        blocks=since(((0, 9, 0), (16, 32, 64)), ((0, 12, 0), (16,))),
        exact_blocks_until=(0, 12, 0),
        heads=since(
            ((0, 9, 0), Heads(one_of=(32, 64, 96, 128, 160, 192, 224, 256))),
            ((0, 12, 0), Heads(multiple_of=8, up_to=256)),
            ((0, 20, 2), Heads(multiple_of=8, up_to=256, large_up_to=512, large_on=(9, 10, 11))),
        ),
        sinks=since(((0, 9, 0), (9,)), ((0, 22, 1), (9, 10, 11))),
        # graphs: see legality.graph_support, they depend on the FlashAttention version
    ),
    "FLASHINFER": Backend(
        capability=since(((0, 9, 0), ((7, 5), (12, 1))), ((0, 24, 0), ((8, 0), (12, 1)))),
        kv=since(
            ((0, 9, 0), ("auto", *FP8_BOTH)),
            ((0, 15, 1), ("auto", "bfloat16", *FP8_BOTH)),
            ((0, 18, 1), ("auto", "float16", "bfloat16", *FP8_BOTH)),
            ((0, 21, 0), ("auto", "float16", "bfloat16", *FP8_BOTH, "nvfp4")),
            ((0, 28, 0), ("auto", "float16", "bfloat16", *FP8_BOTH, "nvfp4", "nvfp4_4over6")),
        ),
        kv_on={"nvfp4": since(((0, 21, 0), (10,)), ((0, 32, 0), (8, 9, 10, 12))), "nvfp4_4over6": fixed((10,))},
        blocks=fixed((16, 32, 64)),
        exact_blocks_until=(0, 12, 0),
        heads=since(((0, 9, 0), Heads(one_of=(64, 128, 256))), ((0, 22, 1), Heads(one_of=(64, 128, 256, 512)))),
        sinks=since(((0, 9, 0), (10,)), ((0, 28, 0), (10, 12)), ((0, 30, 0), (9, 10, 12))),
        # graphs: see legality.graph_support, they depend on the GPU
    ),
    "TRITON_ATTN": Backend(
        dtypes=ALL_FLOATS,
        kv=since(
            ((0, 9, 0), ("auto", *FP8_BOTH)),
            ((0, 15, 1), ("auto", "bfloat16", *FP8_BOTH)),
            ((0, 18, 1), ("auto", "float16", "bfloat16", *FP8_BOTH)),
            ((0, 20, 2), ("auto", "float16", "bfloat16", *FP8_BOTH, "int8_per_token_head", "fp8_per_token_head")),
            (
                (0, 25, 1),
                ("auto", *HALF, *FP8_BOTH, "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
            ),
        ),
        blocks=fixed((16,)),
        heads=fixed(Heads(at_least=32)),
        sinks=fixed(None),
        graphs=fixed(ALWAYS),
    ),
    "FLEX_ATTENTION": Backend(
        available=((0, 9, 2), None),
        dtypes=ALL_FLOATS,
        blocks=since(((0, 9, 2), ()), ((0, 21, 0), (16,))),
        graphs=since(((0, 9, 2), NEVER), ((0, 20, 2), ALWAYS)),
    ),
    "XFORMERS": Backend(available=((0, 9, 0), (0, 12, 0)), blocks=fixed((16,)), graphs=fixed(NEVER)),
    "TREE_ATTN": Backend(
        available=((0, 10, 2), (0, 21, 0)),
        blocks=fixed((16,)),
        heads=fixed(Heads(one_of=(32, 64, 96, 128, 160, 192, 224, 256))),
        graphs=fixed(NEVER),
    ),
    "TURBOQUANT": Backend(
        available=((0, 20, 2), None),
        kv=fixed(("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")),
        blocks=fixed((16, 32, 64, 128)),
        graphs=fixed(UNIFORM_BATCH),
    ),
    "HPC_ATTN": Backend(
        available=((0, 25, 1), None),
        capability=since(((0, 25, 1), ((9, 0), None)), ((0, 28, 0), ((9, 0), (9, 0)))),
        kv=fixed(("auto", "bfloat16", "fp8_e4m3")),
        blocks=fixed((64,)),
        heads=fixed(Heads(one_of=(128,))),
        graphs=fixed(SINGLE_TOKEN),
    ),
    "B12X": Backend(
        available=((0, 30, 0), None),
        capability=fixed(((12, 0), (12, 1))),
        dtypes=("bfloat16",),
        kv=fixed(("auto", "bfloat16", *FP8)),
        heads=fixed(Heads(one_of=(64, 128, 192, 256))),
        sinks=fixed(None),
        graphs=fixed(UNIFORM_BATCH),
        package="b12x",
    ),
    "FLASH_ATTN_DIFFKV": Backend(available=((0, 14, 1), None)),
    "TRITON_ATTN_DIFFKV": Backend(available=((0, 24, 0), None)),
    "TRITON_FLASH_ATTN": Backend(available=((0, 30, 0), None)),
    "TRITON_FLASHINFER": Backend(available=((0, 30, 0), None)),
    "DUAL_CHUNK_FLASH_ATTN": Backend(available=((0, 9, 0), (0, 11, 2))),
    "DIFFERENTIAL_FLASH_ATTN": Backend(available=((0, 10, 0), (0, 11, 2))),
    "ULTRAQUANT": Backend(available=((0, 32, 0), None), dtypes=("bfloat16",), kv=fixed(("ultraquant_4bit",))),
    "FLASH_ATTN_MLA": Backend(
        available=((0, 10, 2), None),
        capability=fixed(((9, 0), (9, 9))),
        blocks=fixed((16,)),
        graphs=fixed(UNIFORM_BATCH),
        heads=_MLA_HEADS,
        mla=True,
    ),
    "FLASHMLA": Backend(
        capability=fixed(((9, 0), (10, 9))),
        kv=kv_cache(*FP8),
        blocks=fixed((64,)),
        exact_blocks_until=(0, 12, 0),
        graphs=since(((0, 9, 0), UNIFORM_BATCH)),
        heads=_MLA_HEADS,
        mla=True,
    ),
    "FLASHINFER_MLA": Backend(
        available=((0, 10, 2), None),
        capability=fixed(((10, 0), (10, 9))),
        kv=kv_cache(*FP8),
        blocks=fixed((32, 64)),
        exact_blocks_until=(0, 12, 0),
        graphs=since(((0, 10, 2), NEVER), ((0, 11, 2), UNIFORM_BATCH), ((0, 31, 0), ALWAYS)),
        heads=_MLA_HEADS,
        mla=True,
    ),
    "CUTLASS_MLA": Backend(
        available=((0, 9, 2), None),
        capability=fixed(((10, 0), (10, 9))),
        kv=kv_cache(*FP8),
        blocks=fixed((128,)),
        exact_blocks_until=(0, 12, 0),
        graphs=since(((0, 9, 2), NEVER), ((0, 10, 2), SINGLE_TOKEN)),
        heads=_MLA_HEADS,
        mla=True,
    ),
    "TRITON_MLA": Backend(
        kv=since(((0, 9, 0), ("auto",)), ((0, 15, 1), ("auto", "bfloat16")), ((0, 18, 1), ("auto", *HALF, *FP8))),
        blocks=since(((0, 9, 0), ()), ((0, 18, 1), (16,))),
        graphs=since(
            ((0, 9, 0), NEVER), ((0, 22, 1), UNIFORM_BATCH), ((0, 26, 0), SINGLE_TOKEN), ((0, 31, 0), UNIFORM_BATCH)
        ),
        heads=since(((0, 9, 0), Heads(one_of=(576,))), ((0, 18, 1), Heads())),
        mla=True,
    ),
    "TOKENSPEED_MLA": Backend(
        available=((0, 21, 0), None),
        capability=fixed(((10, 0), (10, 9))),
        kv=fixed(FP8),
        blocks=fixed((32, 64)),
        graphs=fixed(UNIFORM_BATCH),
        heads=_MLA_HEADS,
        mla=True,
        package="tokenspeed_mla",
    ),
    "FLASHMLA_SPARSE": Backend(
        available=((0, 11, 2), None),
        capability=fixed(((9, 0), (10, 9))),
        dtypes=("bfloat16",),
        kv=since(
            ((0, 11, 2), ("auto", "fp8_ds_mla")),
            ((0, 15, 1), ("auto", "bfloat16", "fp8_ds_mla")),
            ((0, 18, 1), ("auto", "bfloat16", "fp8_ds_mla", "fp8")),
            ((0, 30, 0), ("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla")),
        ),
        kv_on={"nvfp4_ds_mla": fixed((10,))},
        blocks=fixed((64,)),
        exact_blocks_until=(0, 12, 0),
        graphs=fixed(UNIFORM_BATCH),
        mla=True,
        sparse=True,
    ),
    "FLASH_ATTN_MLA_SPARSE": Backend(
        available=((0, 25, 1), None),
        capability=fixed(((9, 0), (9, 9))),
        blocks=fixed((64,)),
        graphs=fixed(UNIFORM_BATCH),
        mla=True,
        sparse=True,
    ),
    "FLASHINFER_MLA_SPARSE": Backend(
        available=((0, 17, 1), None),
        capability=fixed(((10, 0), (10, 9))),
        kv=since(((0, 17, 1), ("auto", "bfloat16")), ((0, 18, 1), ("auto", *HALF, *FP8))),
        blocks=fixed((32, 64)),
        graphs=since(((0, 17, 1), UNIFORM_BATCH), ((0, 29, 0), ALWAYS), ((0, 32, 0), UNIFORM_BATCH)),
        mla=True,
        sparse=True,
    ),
    "FLASHINFER_MLA_SPARSE_SM120": Backend(
        available=((0, 24, 0), None),
        capability=fixed(((12, 0), (12, 9))),
        dtypes=("bfloat16",),
        kv=fixed(("auto", *FP8, "fp8_ds_mla")),
        blocks=fixed((64,)),
        mla=True,
        sparse=True,
    ),
    "FLASHINFER_MLA_SPARSE_SM90": Backend(
        available=((0, 30, 0), None),
        capability=fixed(((9, 0), (9, 9))),
        dtypes=("bfloat16",),
        kv=fixed(("auto", "bfloat16", *FP8)),
        blocks=fixed((64,)),
        mla=True,
        sparse=True,
    ),
    "FLASH_ATTN_MLA_SPARSE_FA4": Backend(
        available=((0, 33, 0), None), dtypes=("bfloat16",), kv=fixed(("auto", "bfloat16")), mla=True, sparse=True
    ),
    "CPU_ATTN": Backend(available=((0, 11, 2), None), platform="cpu", graphs=fixed(NEVER)),
    "CPU_MLA": Backend(available=((0, 28, 0), None), platform="cpu", mla=True, graphs=fixed(NEVER)),
    "AMX_MLA": Backend(available=((0, 29, 0), None), platform="cpu", mla=True, graphs=fixed(NEVER)),
    "ROCM_ATTN": Backend(available=((0, 11, 0), None), platform="rocm", graphs=fixed(ALWAYS)),
    "ROCM_AITER_FA": Backend(
        available=((0, 10, 2), None),
        platform="rocm",
        graphs=since(((0, 10, 2), ALWAYS), ((0, 11, 0), SINGLE_TOKEN), ((0, 20, 2), UNIFORM_BATCH)),
    ),
    "ROCM_AITER_MLA": Backend(
        platform="rocm", mla=True, graphs=since(((0, 9, 0), SINGLE_TOKEN), ((0, 16, 0), UNIFORM_BATCH))
    ),
    "ROCM_AITER_TRITON_MLA": Backend(available=((0, 12, 0), None), platform="rocm", mla=True),
    "ROCM_AITER_MLA_SPARSE": Backend(
        available=((0, 12, 0), None),
        platform="rocm",
        mla=True,
        sparse=True,
        graphs=since(((0, 12, 0), NEVER), ((0, 20, 2), SINGLE_TOKEN), ((0, 26, 0), UNIFORM_BATCH)),
    ),
    "ROCM_AITER_UNIFIED_ATTN": Backend(available=((0, 11, 2), None), platform="rocm"),
    "ROCM_SEGMENTED_ATTN": Backend(available=((0, 32, 0), None), platform="rocm"),
    "ROCM_OCTAVE": Backend(available=((0, 33, 0), None), platform="rocm", graphs=fixed(UNIFORM_BATCH)),
    "ROCM_FLASH": Backend(available=((0, 9, 0), (0, 11, 2)), platform="rocm"),
    "XPU_MLA_SPARSE": Backend(available=((0, 18, 1), None), platform="xpu", mla=True, sparse=True, graphs=fixed(NEVER)),
    "IPEX": Backend(available=((0, 9, 0), (0, 16, 0)), platform="xpu"),
    "PALLAS": Backend(available=((0, 9, 0), (0, 14, 1)), platform="tpu"),
    "TORCH_SDPA": Backend(platform="cpu", graphs=fixed(NEVER)),
    "NO_ATTENTION": Backend(platform="any"),
    "CUSTOM": Backend(available=((0, 11, 2), None), platform="any"),
}

# Names of the enumeration that serve single model families or are spelled differently for a while: no requirements kept.
OTHER_NAMES: dict[str, tuple[Version, Version | None]] = {
    "HPU_ATTN": ((0, 9, 0), (0, 10, 0)),
    "BLOCK_SPARSE_FLASH_ATTN": ((0, 9, 0), (0, 10, 0)),
    "FLASHMLA_SPARSE_DSV4": ((0, 23, 0), None),
    "FLASHINFER_MLA_SPARSE_DSV4": ((0, 23, 0), None),
    "ROCM_FLASHMLA_SPARSE_DSV4": ((0, 23, 0), None),
    "MINIMAX_M3_SPARSE": ((0, 24, 0), None),
    "CUTLASS_MSA": ((0, 27, 1), None),
    "TRITON_MSA": ((0, 27, 1), None),
    "FLASHMLA_SPARSE_DSV41": ((0, 30, 0), None),
    "FLASHINFER_MLA_SPARSE_DSV41": ((0, 30, 0), None),
    "FLASHMLA_MEGA_ATTN_DSV41": ((0, 31, 0), None),
    "ROCM_FLASHMLA_SPARSE_DSV41": ((0, 33, 0), None),
    "STEP5_DSA": ((0, 33, 0), None),
    "FLASH_ATTN_VLLM_V1": ((0, 9, 0), (0, 11, 0)),
    "TRITON_ATTN_VLLM_V1": ((0, 9, 0), (0, 11, 0)),
    "ROCM_AITER_MLA_VLLM_V1": ((0, 9, 0), (0, 11, 0)),
    "PALLAS_VLLM_V1": ((0, 9, 0), (0, 11, 0)),
    "FLASHINFER_VLLM_V1": ((0, 9, 2), (0, 11, 0)),
    "TRITON_MLA_VLLM_V1": ((0, 9, 2), (0, 11, 0)),
    "FLASHMLA_VLLM_V1": ((0, 9, 2), (0, 11, 0)),
    "CUTLASS_MLA_VLLM_V1": ((0, 9, 2), (0, 10, 2)),
    "TORCH_SDPA_VLLM_V1": ((0, 10, 2), (0, 11, 0)),
    "XFORMERS_VLLM_V1": ((0, 10, 2), (0, 11, 0)),
}
# Names whose class exists in a release before their name does.
SPELLED_LATER: dict[str, Version] = {"TRITON_ATTN": (0, 11, 0), "CUTLASS_MLA": (0, 10, 2)}
