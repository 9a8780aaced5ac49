"""Which attention backends a vLLM version has, which of them it would refuse here and why, and what their graphs can hold.

For a vLLM that is installed, its own `validate_configuration` is asked instead (advisor/target/describe.py). These functions
read the table in backend_table.py. Capabilities are pairs, (9, 0) for an H100.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.engine.rules.backend_names import backend_names, is_backend, plain_name
from advisor.engine.rules.backend_table import BACKENDS, Backend, Heads, Version, at
from advisor.engine.rules.graph_support import flash_attention_version, graph_support

__all__ = [
    "CHECKED_SINCE",
    "Surroundings",
    "automatic_backend",
    "automatic_order",
    "backend_names",
    "flash_attention_version",
    "graph_support",
    "is_backend",
    "objections",
    "plain_name",
]

# The first release whose backend classes state what they need; it refuses a backend that does not fit. Releases before it
# mostly warned and took another.
CHECKED_SINCE = (0, 11, 2)
# Block sizes that vLLM let in at all, until 0.18.1 left that to the backends.
_BLOCK_SIZES = (((0, 9, 0), (1, 8, 16, 32, 64, 128)), ((0, 11, 2), (1, 8, 16, 32, 64, 128, 256)), ((0, 18, 1), None))
_DTYPE_NAMES = {"half": "float16", "float": "float32"}


# ---------------------------------------------------------------- objections


@dataclass(frozen=True)
class Surroundings:
    """What decides whether a backend fits: release, GPU, model and cache. None: not known or not set."""

    version: Version
    compute_capability: tuple[int, int]
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    head_size: int | None = None
    mla: bool | None = False
    sinks: bool | None = False
    sparse: bool | None = False
    platform: str = "cuda"


def objections(backend: str, around: Surroundings) -> tuple[str, ...]:
    """Why this version would refuse the backend; empty where it would not.

    A backend that is named but has no requirements in the table gives no objection: see `graph_support` for UNKNOWN.
    """
    version, compute_capability = around.version, around.compute_capability
    if not is_backend(backend, version):
        return (f"vLLM {'.'.join(map(str, version))} has no backend {backend}",)
    needs = BACKENDS.get(plain_name(backend))
    if needs is None:
        return ()
    if needs.platform not in (around.platform, "any"):
        return (f"it is for {needs.platform}, not for {around.platform}",)
    found = [
        _capability_objection(needs, version, compute_capability),
        _dtype_objection(needs, around.dtype),
        _kv_objection(needs, version, compute_capability, around.kv_cache_dtype),
        _block_objection(needs, version, around.block_size),
        _head_objection(needs, version, compute_capability, around.head_size),
        _kind_objection(needs, around.mla, around.sparse),
        _sink_objection(needs, version, compute_capability, around.sinks),
    ]
    return tuple(reason for reason in found if reason)


def _capability_objection(needs: Backend, version: Version, capability: tuple[int, int]) -> str | None:
    low, high = at(needs.capability, version) or (None, None)
    if (low is None or capability >= low) and (high is None or capability <= high):
        return None
    wanted = (
        f"{_dots(low)} or more"
        if high is None
        else f"{_dots(low)} to {_dots(high)}"
        if low
        else f"at most {_dots(high)}"
    )
    return f"compute capability {_dots(capability)} is not supported, it needs {wanted}"


def _dtype_objection(needs: Backend, dtype: str | None) -> str | None:
    known = _DTYPE_NAMES.get(dtype or "", dtype)
    if known in (None, "auto") or known in needs.dtypes:
        return None
    return f"dtype {known} is not supported, only {', '.join(needs.dtypes)}"


def _kv_objection(needs: Backend, version: Version, capability: tuple[int, int], kind: str | None) -> str | None:
    if kind is None:
        return None
    allowed = at(needs.kv, version) or ()
    if kind not in allowed:
        return f"KV-cache dtype {kind} is not supported, only {', '.join(allowed)}"
    majors = at((needs.kv_on or {}).get(kind, ()), version)
    if majors is not None and capability[0] not in majors:
        return f"KV-cache dtype {kind} is supported on compute capability {', '.join(f'{m}.x' for m in majors)} only"
    return None


def _block_objection(needs: Backend, version: Version, size: int | None) -> str | None:
    if size is None:
        return None
    let_in = at(_BLOCK_SIZES, version)
    if let_in is not None and size not in let_in:
        return f"block size {size} is none of {', '.join(map(str, let_in))}"
    sizes = at(needs.blocks, version)
    if not sizes:
        return None
    if needs.exact_blocks_until is not None and version < needs.exact_blocks_until:
        return None if size in sizes else f"block size {size} is not supported, only {', '.join(map(str, sizes))}"
    if any(size % kernel == 0 for kernel in sizes):
        return None
    return f"block size {size} is not supported, it must be a multiple of {' or '.join(map(str, sizes))}"


def _head_objection(needs: Backend, version: Version, capability: tuple[int, int], size: int | None) -> str | None:
    heads: Heads | None = at(needs.heads, version)
    if size is None or heads is None or _head_fits(heads, size, capability[0]):
        return None
    if heads.one_of:
        return f"head size {size} is not supported, only {', '.join(map(str, heads.one_of))}"
    return f"head size {size} is not supported"


def _head_fits(heads: Heads, size: int, major: int) -> bool:
    if heads.one_of:
        return size in heads.one_of
    top = heads.large_up_to if major in heads.large_on else heads.up_to
    return size % heads.multiple_of == 0 and size >= heads.at_least and (top is None or size <= top)


def _kind_objection(needs: Backend, mla: bool | None, sparse: bool | None) -> str | None:
    if mla is None or needs.platform == "any":
        return None
    if needs.mla != mla:
        return "it is for MLA models only" if needs.mla else "it does not support MLA"
    if not mla or sparse is None or needs.sparse == sparse:
        return None
    return "it is for models with sparse MLA only" if needs.sparse else "it does not support sparse MLA"


def _sink_objection(needs: Backend, version: Version, capability: tuple[int, int], sinks: bool | None) -> str | None:
    if not sinks:
        return None
    majors = at(needs.sinks, version)
    return None if majors is None or capability[0] in majors else "attention sinks are not supported"


def _dots(pair: tuple[int, int]) -> str:
    return ".".join(map(str, pair))


# ---------------------------------------------------------------- automatic choice

# (from version, for MLA, major capability or None for the others) -> order of preference; the last entry that fits counts.
_ORDERS: tuple[tuple[Version, bool, int | None, tuple[str, ...]], ...] = (
    ((0, 9, 0), False, None, ("FLASH_ATTN",)),
    ((0, 9, 2), False, None, ("FLASH_ATTN", "FLEX_ATTENTION")),
    ((0, 9, 2), False, 10, ("FLASHINFER", "FLASH_ATTN", "FLEX_ATTENTION")),
    ((0, 9, 0), True, None, ("FLASHMLA", "TRITON_MLA")),
    ((0, 10, 2), True, None, ("FLASHMLA", "FLASH_ATTN_MLA", "TRITON_MLA")),
    ((0, 10, 2), True, 10, ("CUTLASS_MLA", "FLASHINFER_MLA", "FLASHMLA", "TRITON_MLA")),
    ((0, 11, 2), False, None, ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")),
    ((0, 11, 2), False, 10, ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION")),
    ((0, 20, 2), False, None, ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")),
    ((0, 20, 2), False, 10, ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")),
    ((0, 11, 2), True, None, ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA")),
    ((0, 11, 2), True, 10, ("CUTLASS_MLA", "FLASHINFER_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")),
    ((0, 16, 0), True, 10, ("FLASHINFER_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")),
    (
        (0, 22, 1),
        True,
        10,
        ("FLASHINFER_MLA", "TOKENSPEED_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"),
    ),
    ((0, 24, 0), True, 12, ("TRITON_MLA",)),
)


# The same for sparse MLA (`_get_backend_priorities` of platforms/cuda.py). On 10.x the order also depends on the number of heads
# and the KV-cache type: it is not kept, and nothing is concluded there.
_SPARSE_ORDERS: tuple[tuple[Version, int | None, tuple[str, ...]], ...] = (
    ((0, 11, 2), None, ("FLASHMLA_SPARSE",)),
    ((0, 11, 2), 10, ()),
    ((0, 24, 0), 12, ("FLASHINFER_MLA_SPARSE_SM120",)),
    ((0, 25, 1), None, ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE")),
    ((0, 30, 0), None, ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM90")),
)


def sparse_order(version: Version, compute_capability: tuple[int, int]) -> tuple[str, ...]:
    """As `automatic_order`, for models with sparse MLA; () where it is not known."""
    fitting = [
        (major is not None, start, order)
        for start, major, order in _SPARSE_ORDERS
        if start <= version and major in (None, compute_capability[0])
    ]
    return max(fitting)[2] if fitting else ()


def automatic_order(
    version: Version,
    compute_capability: tuple[int, int],
    mla: bool = False,
    kv_cache_dtype: str | None = None,
    sinks: bool = False,
    sparse: bool = False,
) -> tuple[str, ...]:
    """Backends in the order in which vLLM tries them for decoder models on CUDA: the first without objections is taken.

    Not covered, and so never to be concluded from this: non-causal and image-prefix models.
    """
    if sparse:
        return sparse_order(version, compute_capability)
    fitting = [
        (start, major is not None, order)
        for start, for_mla, major, order in _ORDERS
        if start <= version and for_mla == mla and major in (None, compute_capability[0])
    ]
    _, order = max((specific, start, order) for start, specific, order in fitting)[1:]
    special = sinks or (kv_cache_dtype or "").startswith("fp8")
    if version < CHECKED_SINCE and not mla and special and compute_capability != (9, 0) and order[0] == "FLASH_ATTN":
        return ("TRITON_ATTN", "FLEX_ATTENTION")
    return order


def automatic_backend(around: Surroundings) -> str | None:
    """The backend that vLLM picks by itself on CUDA, or None where every one in the table has an objection."""
    version = around.version
    kinds = bool(around.mla), around.kv_cache_dtype, bool(around.sinks), bool(around.sparse)
    for name in automatic_order(version, around.compute_capability, *kinds):
        spelled = name if is_backend(name, version) else f"{name}_VLLM_V1"
        if BACKENDS[name].package is None and not objections(spelled, around):
            return name
    return None
