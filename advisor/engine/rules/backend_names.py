"""Names of attention backends, as each vLLM version's enumeration spells them."""

from __future__ import annotations

from advisor.engine.rules.backend_table import BACKENDS, OTHER_NAMES, SPELLED_LATER, Version


def backend_names(version: Version) -> tuple[str, ...]:
    """The names that this version's enumeration holds (CUDA and other platforms), in alphabetical order."""
    dated = {name: backend.available for name, backend in BACKENDS.items()} | OTHER_NAMES
    found = [
        name for name, span in dated.items() if _within(version, span) and version >= SPELLED_LATER.get(name, span[0])
    ]
    return tuple(sorted(found))


def plain_name(name: str) -> str:
    """`flashinfer_vllm_v1` -> `FLASHINFER`: the suffix of 0.9 to 0.10 names the engine, not another backend."""
    return name.upper().removesuffix("_VLLM_V1")


def is_backend(name: str, version: Version) -> bool:
    """Whether this version takes the name.

    0.11.0 and 0.11.2 hold code that would strip the old suffix, but envs.py compares the variable with the enumeration first and
    refuses it (executed).
    """
    names = backend_names(version)
    return name.upper() in names or (version < (0, 11) and plain_name(name) in names)


def _within(version: Version, span: tuple[Version, Version | None]) -> bool:
    return span[0] <= version and (span[1] is None or version < span[1])
