"""AMD GPUs, as far as the kernel tells without any package of AMD's: name, number and memory.

Read from sysfs only (amdgpu's `product_name`, `mem_info_vram_total`, `unique_id`). Written from the kernel's documentation
and tested against a made-up tree: it has not run on an AMD machine.
"""

from __future__ import annotations

from pathlib import Path

from advisor.errors import EnvironmentMismatch
from advisor.inspection.gpu_names import slug_of_driver_name
from advisor.records import GpuFacts
from advisor.units import GIB

_AMD = "0x1002"
_COMPUTE_NODE = Path("/dev/kfd")  # there only with the compute part of the driver, which ROCm needs


def detect(drm: Path = Path("/sys/class/drm"), compute_node: Path = _COMPUTE_NODE) -> GpuFacts | None:
    """Facts of the first AMD GPU, None without one. Raises EnvironmentMismatch where its kernel driver gives no name."""
    if not compute_node.exists():
        return None
    cards = [card / "device" for card in sorted(drm.glob("card[0-9]*")) if _read(card / "device" / "vendor") == _AMD]
    if not cards:
        return None
    names = [_read(card / "product_name") for card in cards]
    if not names[0]:
        hint = "--gpu cpu works on this machine with a CPU build of vLLM"
        raise EnvironmentMismatch("this machine's AMD GPU does not tell its name: unsupported for now", hint)
    equal = [card for card, name in zip(cards, names, strict=True) if name == names[0]]
    memory = _read(cards[0] / "mem_info_vram_total")
    return GpuFacts(
        kind="rocm",
        name=names[0],
        slug=slug_of_driver_name(names[0]),
        count=len(equal),
        memory_gib=round(int(memory or 0) / GIB, 2),
        driver=_read(Path("/sys/module/amdgpu/version")) or None,
        uuids=tuple(filter(None, (_read(card / "unique_id") for card in equal))),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
