"""Where a launched server keeps compiled code: in the study's folder, so that a start is cold or warm because we made it so."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

STUDY, PROOF = "cache", "cache-proof"  # folders below the study's; the second begins empty, for the winner's cold start


def study_cache(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """torch.compile's artefacts are shared by the launches of a study and by nobody else, unless a person chose a place.

    Triton's and FlashInfer's kernels stay where the person has them: building FlashInfer's takes minutes. A cache that was found
    broken has a successor (`renewed_cache`): the newest one counts.
    """
    if "VLLM_CACHE_ROOT" in inherited:
        return {}
    return {"VLLM_CACHE_ROOT": str(_generations(folder)[-1].resolve())}


def renewed_cache(folder: Path) -> dict[str, str]:
    """An empty cache for this and all later launches of the study. The broken one is left: another server may be using it."""
    path = folder / f"{STUDY}-{len(_generations(folder)) + 1}"
    path.mkdir(parents=True)
    return {"VLLM_CACHE_ROOT": str(path.resolve())}


def _generations(folder: Path) -> list[Path]:
    """`cache`, `cache-2`, `cache-3` ... as far as they exist; the first one always counts as there."""
    found = [folder / STUDY]
    while (later := folder / f"{STUDY}-{len(found) + 1}").is_dir():
        found.append(later)
    return found


def proof_cache(folder: Path, empty: bool) -> dict[str, str]:
    """All caches in one folder, emptied first if asked: the start of a container that was never here before.

    Variables: vLLM's own, PyTorch Inductor's, Triton's, FlashInfer's (jit/env.py: the folder above `.cache/flashinfer`).
    """
    root = (folder / PROOF).resolve()
    if empty:
        shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    return {
        "VLLM_CACHE_ROOT": str(root / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor"),
        "TRITON_CACHE_DIR": str(root / "triton"),
        "FLASHINFER_WORKSPACE_BASE": str(root),
    }


def has_proof_cache(folder: Path) -> bool:
    return (folder / PROOF).is_dir()


def forget_proof_cache(folder: Path) -> None:
    """It is as large as the compiled code of one configuration, and of no use after the proof."""
    shutil.rmtree(folder / PROOF, ignore_errors=True)
