"""Compute capability and memory of a GPU by its slug, for questions about a GPU that is not here.

Compute capabilities: NVIDIA's published list; AMD's GPUs have none. Memory: GiB as the driver reports it, rounded; vLLM's
defaults depend on it only through thresholds (70 GiB and above is a large GPU).
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.inspection.gpu_names import slug_of


@dataclass(frozen=True)
class GpuSpec:
    """None where nothing is known. `platform` is cuda, rocm or cpu."""

    slug: str
    platform: str
    compute_capability: tuple[int, int] | None = None
    memory_gib: float | None = None


_FIXED: dict[str, tuple[tuple[int, int], float]] = {
    "h100": ((9, 0), 80), "h100-pcie": ((9, 0), 80), "h100-nvl": ((9, 0), 94), "h200": ((9, 0), 140.4), "h200-nvl": ((9, 0), 140.4),
    "h800": ((9, 0), 80), "h800-pcie": ((9, 0), 80), "h20": ((9, 0), 96), "gh200": ((9, 0), 96),
    "a100": ((8, 0), 80), "a100-pcie": ((8, 0), 80), "a100-40gb": ((8, 0), 40), "a100-80gb": ((8, 0), 80),
    "a100-pcie-40gb": ((8, 0), 40), "a100-pcie-80gb": ((8, 0), 80), "a800": ((8, 0), 80), "a30": ((8, 0), 24),
    "a2": ((8, 6), 16), "a10": ((8, 6), 24), "a10g": ((8, 6), 24), "a16": ((8, 6), 16), "a40": ((8, 6), 48),
    "l4": ((8, 9), 24), "l20": ((8, 9), 48), "l40": ((8, 9), 48), "l40s": ((8, 9), 48), "t4": ((7, 5), 16), "t4g": ((7, 5), 16),
    "p4": ((6, 1), 8), "p40": ((6, 1), 24), "p100": ((6, 0), 16), "v100": ((7, 0), 32), "v100-16gb": ((7, 0), 16),
    "v100-32gb": ((7, 0), 32), "b100": ((10, 0), 180), "b200": ((10, 0), 180), "gb200": ((10, 0), 185), "b300": ((10, 3), 270),
    "gb300": ((10, 3), 277), "gb10": ((12, 1), 120), "rtx6000": ((7, 5), 24), "rtx8000": ((7, 5), 48), "titanrtx": ((7, 5), 24),
    "rtx2080": ((7, 5), 8), "rtx2080ti": ((7, 5), 11), "rtx2080super": ((7, 5), 8), "rtx3060": ((8, 6), 12), "rtx3070": ((8, 6), 8),
    "rtx3080": ((8, 6), 10), "rtx3090": ((8, 6), 24), "rtx3090ti": ((8, 6), 24), "rtx4060": ((8, 9), 8), "rtx4070": ((8, 9), 12),
    "rtx4080": ((8, 9), 16), "rtx4090": ((8, 9), 24), "rtx5060": ((12, 0), 8), "rtx5070": ((12, 0), 12), "rtx5080": ((12, 0), 16),
    "rtx5090": ((12, 0), 32), "rtxpro6000": ((12, 0), 96),
}  # fmt: skip
# AMD's published memory, of what one device is to the driver: an MI250 is two.
_AMD_GIB = {
    "mi100": 32, "mi210": 64, "mi250": 64, "mi300a": 128, "mi300x": 192, "mi308x": 192, "mi325x": 256, "mi350x": 288,
    "mi355x": 288, "rx7900xtx": 24,
}  # fmt: skip
# Beginnings of slugs, where only the generation is told; none of these has 70 GiB.
_GENERATIONS = (("rtx30", (8, 6)), ("rtxa", (8, 6)), ("rtx40", (8, 9)), ("rtx50", (12, 0)), ("rtxpro", (12, 0)))


def spec_of(name: str) -> GpuSpec:
    """What is known of the GPU that a person names. Raises InputError for a name that is no GPU's."""
    slug = slug_of(name)
    if slug == "cpu":
        return GpuSpec(slug, "cpu")
    if slug.startswith(("mi", "rx")):
        memory = next((gib for start, gib in _AMD_GIB.items() if slug.startswith(start)), None)
        return GpuSpec(slug, "rocm", memory_gib=memory)
    parts = slug.split("-")
    for known in ("-".join(parts[:end]) for end in range(len(parts), 0, -1)):
        if known in _FIXED:
            capability, memory = _FIXED[known]
            return GpuSpec(slug, "cuda", capability, memory)
    if slug.endswith("ada"):
        return GpuSpec(slug, "cuda", (8, 9), 24)
    capability = next((value for start, value in _GENERATIONS if slug.startswith(start)), None)
    return GpuSpec(slug, "cuda", capability, 24 if capability else None)
