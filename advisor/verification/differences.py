"""In what this machine is not the profile's: told before any figure. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from advisor.records import Facts
from advisor.serving_profile.schema import Profile
from advisor.units import number

_MEMORY = 0.02  # drivers keep a little for themselves: 140.4 and 139.8 GiB are one kind of GPU


@dataclass(frozen=True)
class Difference:
    what: str
    profile: str
    here: str

    @property
    def told(self) -> str:
        return f"{self.what} {self.profile} -> {self.here}"


def differences(profile: Profile, facts: Facts) -> tuple[Difference, ...]:
    """The gravest first: another model, another GPU, other versions. What one side does not say is no difference."""
    model, gpu, software = profile.model, profile.gpu, profile.software
    engine = facts.engine
    pairs: list[tuple[str, Any, Any]] = [
        ("model (hash of its config.json)", model.config_hash, facts.model.config_hash),
        ("architecture", model.architecture, facts.model.architecture),
        ("model's commit", model.revision, facts.model.revision),
        ("GPU", gpu.name, facts.gpu.name),
        ("GPUs", gpu.count or None, facts.gpu.count or None),
        ("driver", gpu.driver, facts.gpu.driver),
        ("vLLM", software.vllm, engine.vllm_version),
        ("torch", software.torch, engine.torch_version),
        ("CUDA", software.cuda, engine.cuda_version),
        ("FlashInfer", software.flashinfer, engine.flashinfer_version),
        ("Python", software.python, engine.python_version),
    ]
    found = [Difference(what, str(old), str(new)) for what, old, new in pairs if old and new and old != new]
    was, is_now = gpu.memory_gib, facts.gpu.memory_gib
    if was and is_now and abs(is_now / was - 1) > _MEMORY:
        found.append(Difference("memory", f"{number(was)} GiB", f"{number(is_now)} GiB"))
    return tuple(found)
