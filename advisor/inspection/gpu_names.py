"""GPU names: as people write them, as NVML prints them, and the short slug that names a folder. Pure.

A name is read into a model (`h100`), a form (`pcie`) and a memory size; only what tells two products apart reaches the
slug. NVML's spellings were taken from published `nvidia-smi` outputs, AMD's from the kernel's product names.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from advisor.errors import InputError


@dataclass(frozen=True)
class Known:
    """One product line. `forms` and `memories_gb` list the variants that people tune separately."""

    slug: str
    shown: str  # how an error message writes it
    aliases: tuple[str, ...] = ()  # other spellings, squeezed
    default_form: str | None = None  # the form that a driver name without one means
    forms: tuple[str, ...] = ()  # forms that get a slug of their own
    memories_gb: tuple[int, ...] = ()


@dataclass(frozen=True)
class GpuName:
    """A name that was understood. `form` and `memory_gb` are None where the name does not say."""

    known: Known
    form: str | None = None
    memory_gb: int | None = None

    @property
    def slug(self) -> str:
        form = self.form if self.form in self.known.forms else None
        memory = f"{self.memory_gb}gb" if self.memory_gb in self.known.memories_gb else None
        return "-".join(part for part in (self.known.slug, form, memory) if part)


def _geforce(number: int, *suffixes: str) -> tuple[Known, ...]:
    """`RTX 4070`, `RTX 4070 Ti`, ...; the bare number is an accepted spelling."""
    shown = [f"{number} {suffix}".strip() for suffix in ("", *suffixes)]
    squeezed = [name.replace(" ", "").lower() for name in shown]
    return tuple(Known(f"rtx{short}", f"RTX {name}", (short,)) for name, short in zip(shown, squeezed, strict=True))


KNOWN: tuple[Known, ...] = (
    Known("h100", "H100", default_form="sxm", forms=("pcie", "nvl")),
    Known("h200", "H200", default_form="sxm", forms=("nvl",)),
    Known("h800", "H800", default_form="sxm", forms=("pcie",)),
    Known("h20", "H20"),
    Known("gh200", "GH200"),
    Known("a100", "A100", default_form="sxm", forms=("pcie",), memories_gb=(40, 80)),
    Known("a800", "A800", default_form="sxm", forms=("pcie",), memories_gb=(40, 80)),
    *(Known(name, name.upper()) for name in ("a2", "a10", "a16", "a30", "a40")),
    Known("a10g", "A10G"),
    *(Known(name, name.upper()) for name in ("l4", "l20", "l40", "l40s", "t4", "t4g", "p4", "p40", "p100")),
    Known("v100", "V100", default_form="sxm", forms=("pcie",), memories_gb=(16, 32)),
    *(Known(name, name.upper()) for name in ("b100", "b200", "b300", "gb200", "gb300", "gb10")),
    *_geforce(2080, "Ti", "Super"),
    *(known for number in (3060, 3070, 3080, 3090, 4060, 5060, 5070) for known in _geforce(number, "Ti")),
    *_geforce(4070, "Ti", "Super", "Ti Super"),
    *_geforce(4080, "Super"),
    *(known for number in (4090, 5080, 5090) for known in _geforce(number)),
    *(Known(f"rtxa{n}", f"RTX A{n}", (f"a{n}",)) for n in (2000, 4000, 4500, 5000, 5500, 6000)),
    *(Known(f"rtx{n}ada", f"RTX {n} Ada", (f"{n}ada",)) for n in (2000, 4000, 4500, 5000, 6000)),
    *(Known(f"rtxpro{n}", f"RTX PRO {n}", (f"rtxpro{n}blackwell", f"pro{n}")) for n in (2000, 4000, 4500, 5000, 6000)),
    Known("rtx6000", "Quadro RTX 6000"),
    Known("rtx8000", "Quadro RTX 8000"),
    Known("titanrtx", "TITAN RTX"),
    *(Known(name, name.upper()) for name in ("mi100", "mi210", "mi250")),
    Known("mi250x", "MI250X", ("mi250xmi250",)),  # the kernel prints "AMD Instinct MI250X / MI250"
    *(Known(name, name.upper()) for name in ("mi300a", "mi300x", "mi308x", "mi325x", "mi350x", "mi355x")),
    Known("rx7900xtx", "RX 7900 XTX", ("7900xtx",)),
)
SPECIAL = ("auto", "cpu")

_BY_SPELLING = {spelling: known for known in KNOWN for spelling in (known.slug, *known.aliases)}
_VENDORS = {"nvidia", "amd", "advanced", "micro", "devices", "geforce", "tesla", "instinct", "quadro", "radeon"}
_NOISE = {"gpu", "graphics", "card", "accelerator", "oam", "generation", "edition", "server", "workstation", "max", "q"}
_NOISE |= {"ac", "ts", "d", "superchip", "tensor", "core"}
_FORM = re.compile(r"(sxm|pcie|nvl)\d*")
_MEMORY = re.compile(r"(\d+)(gb|g)")
_JUNK = re.compile(r"hbm\d\w*|gddr\d\w*")


def parse(text: str) -> GpuName | None:
    """The GPU that `text` means, or None where it names none that is known."""
    words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word and word not in _VENDORS | _NOISE]
    form, memory_gb, rest = None, None, []
    for word in _unite_units(words):
        if matched := _FORM.fullmatch(word):
            form = matched.group(1)
        elif matched := _MEMORY.fullmatch(word):
            memory_gb = int(matched.group(1))
        elif not _JUNK.fullmatch(word):
            rest.append(word)
    known = _BY_SPELLING.get("".join(rest))
    return GpuName(known, form, memory_gb) if known else None


def _unite_units(words: list[str]) -> list[str]:
    """`80`, `gb` -> `80gb`."""
    united: list[str] = []
    for word in words:
        if word == "gb" and united and united[-1].isdigit():
            united[-1] += word
        else:
            united.append(word)
    return united


def slug_of(text: str) -> str:
    """Slug of what a person wrote: `RTX 4090` -> `rtx4090`. Raises InputError with the nearest known names."""
    wanted = text.strip().lower()
    if wanted in SPECIAL:
        return wanted
    name = parse(text)
    if name is None:
        raise InputError(f"unknown GPU {text!r}", f"{_nearest(wanted)}; or --gpu auto for the GPU that is here")
    return name.slug


def slug_of_driver_name(name: str) -> str:
    """Slug of what a driver prints. One that the table lacks still gets a usable slug: `NVIDIA X 1` -> `x-1`."""
    parsed = None if " MIG " in f" {name} " else parse(name)
    if parsed:
        return parsed.slug
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _VENDORS]
    return "-".join(words) or "gpu"


def matches(requested: str, driver_name: str) -> bool:
    """Whether the GPU that the driver prints is the one asked for; what the request leaves open matches anything."""
    wanted, found = parse(requested), parse(driver_name)
    if wanted is None or found is None:
        return slug_of_driver_name(requested) == slug_of_driver_name(driver_name)
    same_form = wanted.form in (None, found.form or found.known.default_form)
    told_apart = wanted.memory_gb in wanted.known.memories_gb
    same_memory = not told_apart or wanted.memory_gb == found.memory_gb
    return wanted.known == found.known and same_form and same_memory


def _nearest(wanted: str) -> str:
    squeezed = re.sub(r"[^a-z0-9]+", "", wanted)
    close = difflib.get_close_matches(squeezed, _BY_SPELLING, n=8, cutoff=0.5)
    names = list(dict.fromkeys(_BY_SPELLING[spelling].shown for spelling in close))[:3]
    if names:
        return f"the nearest known names are {', '.join(names)}"
    return "known are for example H100, A100, L40S, RTX 4090, MI300X"
