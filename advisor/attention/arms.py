"""Which attention backends are compared: those that the installed vLLM takes for this model and GPU, its own choice first. Pure.

FLASH_ATTN is one backend of several versions of FlashAttention, which are told apart: `FLASH_ATTN:2`, `FLASH_ATTN:3`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.options import parse_options
from advisor.engine.render import fixed_by
from advisor.errors import InputError
from advisor.records import Facts
from advisor.space.rules import Place, flash_2_has_no_fp8_cache, flash_version_must_differ

FLASH = "FLASH_ATTN"
OWN = "default"
UNKNOWN = "DEFAULT"  # the name of vLLM's choice where it cannot be foretold
_VERSIONS = (2, 3, 4)
_FLASH_4_SINCE = (0, 17, 1)
_COMPARED = {"attention_backend", "flash_attention_version"}


@dataclass(frozen=True)
class Arm:
    """A backend and the settings that ask for it: none for vLLM's own choice. `refused`: why it is not run."""

    name: str
    backend: str | None
    flash_version: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    default: bool = False
    refused: str | None = None

    @property
    def process(self) -> str:
        """What its process and log are called: the name of vLLM's own choice is sure only when it runs."""
        return OWN if self.default else self.name.replace(":", "-")


def arms(facts: Facts, baseline: Mapping[str, Any]) -> list[Arm]:
    """vLLM's own choice, then the others in its order of preference, FlashAttention 4 last; those that are refused as well.

    `baseline`: what vLLM makes of the arguments without any of this (advisor/target/resolve.py).
    """
    place = Place(facts.engine, facts.gpu, facts.model, baseline)
    own = place.own_backend({})
    found = [_default(place, own)]
    for backend in facts.engine.backends:
        if backend.name == FLASH and backend.valid and place.capability is not None:
            found += _flash_versions(place, own)
        elif backend.name != own:
            reason = "; ".join(backend.reasons) or None
            found.append(Arm(backend.name, backend.name, None, {"attention_backend": backend.name}, refused=reason))
    return sorted(found, key=lambda arm: (not arm.default, arm.refused is not None, arm.flash_version == 4))


def _default(place: Place, own: str | None) -> Arm:
    version = place.flash_version({})
    return Arm(label({own: 0} if own else {}, version), own, version, default=True)


def _flash_versions(place: Place, own: str | None) -> list[Arm]:
    """One for each version that is not what runs anyway; where FLASH_ATTN is not vLLM's choice, that one too."""
    asked = {"attention_backend": FLASH}
    runs = place.flash_version(asked)
    found = [] if own == FLASH else [Arm(label({FLASH: 0}, runs), FLASH, runs, asked)]
    for version in _VERSIONS:
        if version == runs or (version == 4 and place.version < _FLASH_4_SINCE):
            continue
        settings = {**asked, "flash_attention_version": version}
        reason = (
            place.engine.flash_attention_refusals.get(str(version))
            or flash_version_must_differ(settings, place)
            or flash_2_has_no_fp8_cache(settings, place)
        )
        found.append(Arm(label({FLASH: 0}, version), FLASH, version, settings, refused=reason))
    return found


def label(backends: Mapping[str, int], flash_version: int | None) -> str:
    """`TRITON_ATTN`, `FLASH_ATTN:3`; several, where layers of one model run different ones, with a plus."""
    names = [f"{name}:{flash_version}" if name == FLASH and flash_version else name for name in backends]
    return "+".join(names) or UNKNOWN


def chosen(found: Sequence[Arm], asked: Sequence[str] | None) -> list[Arm]:
    """Those that are asked for, and vLLM's own choice, which all are compared with. Raises InputError for an unknown name."""
    if not asked:
        return list(found)
    known = {name for arm in found for name in (arm.name, arm.backend) if name}
    if unknown := [name for name in asked if name not in known]:
        offered = ", ".join(dict.fromkeys(arm.name for arm in found if not arm.refused))
        raise InputError(f"--backends {unknown[0]}: this vLLM has no such backend", f"it takes {offered} here")
    return [arm for arm in found if arm.default or {arm.name, arm.backend} & set(asked)]


def parse_backends(text: str | None) -> tuple[str, ...] | None:
    """`flashinfer,FLASH_ATTN:2`; None without a word."""
    names = [name.strip().upper() for name in (text or "").split(",") if name.strip()]
    return tuple(dict.fromkeys(names)) or None


def check_not_fixed(serve_args: Sequence[str], env: Mapping[str, str], version: str) -> None:
    """Raises InputError where the person's own arguments decide what is compared here."""
    if fixed := sorted(_COMPARED & fixed_by(parse_options(serve_args), env, version)):
        raise InputError(
            f"--serve-args decides {', '.join(fixed)}, which is what is compared",
            "leave it out, and choose backends with --backends",
        )


# ---------------------------------------------------------------- what ran


def active(layers: Sequence[Mapping[str, Any]], named: Sequence[str], version: int | None) -> dict[str, Any]:
    """What really ran: as the layers of the engine say, else as its log does (`named` backends, `version` of FlashAttention)."""
    if not layers:
        source = "log" if named else None
        return {"backends": dict.fromkeys(named, 0), "flash_attention_version": version, "source": source}
    backends: dict[str, int] = {}
    for layer in layers:
        backends[layer["backend"]] = backends.get(layer["backend"], 0) + layer["layers"]
    versions = [layer["flash_attention_version"] for layer in layers if layer["flash_attention_version"]]
    prefill = list(dict.fromkeys(layer["prefill_backend"] for layer in layers if layer["prefill_backend"]))
    found = {"backends": backends, "flash_attention_version": versions[0] if versions else None, "source": "engine"}
    if not prefill:
        return found
    short = max((layer.get("prompts_as_decode") or 0 for layer in layers), default=0)
    return {**found, "mla_prefill_backend": prefill[0], "mla_prompts_as_decode": short or None}


def not_as_asked(arm: Arm, ran: Mapping[str, Any]) -> str | None:
    """Why the figures of a start would not be the arm's; None where they are."""
    names, version = ran["backends"], ran["flash_attention_version"]
    if arm.default:
        return None
    if not names:
        return "neither the engine nor its log says which attention runs"
    if arm.backend not in names:
        return f"vLLM ran {label(names, version)} instead, without a word of refusal"
    if arm.flash_version and version and version != arm.flash_version:
        return f"vLLM ran FlashAttention {version} instead, without a word of refusal"
    return None
