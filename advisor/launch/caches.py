"""Where a launched server keeps compiled code: in the study's folder, so that a start is cold or warm because we made it so."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from advisor.journal import write_atomically

STUDY, PROOF = "cache", "cache-proof"  # folders below the study's; the second begins empty, for the winner's cold start
TRITON = "TRITON_CACHE_DIR"
CLASSES = "modelinfos"


def study_cache(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Compiled code (torch.compile's artefacts, Triton's kernels) is shared by a study's launches and by nobody else.

    A place that a person chose stays, and so do FlashInfer's kernels: building them takes minutes. Triton is told because Inductor
    puts its cache below the one that vLLM keeps for each configuration (torch 2.11, triton_heuristics.py): with every other capture
    list all kernels were built anew, vLLM's own too, which took 8 s of a start on an H200. A cache that was found broken has a
    successor (`renewed_cache`): the newest one counts.
    """
    if "VLLM_CACHE_ROOT" in inherited:
        return {}
    return _below(_generations(folder)[-1], inherited)


def lend_model_classes(cache: Mapping[str, str], inherited: Mapping[str, str]) -> None:
    """What vLLM found out about the model's class during the inspection, as files: they hold a hash of the class's source, and
    vLLM leaves them below its cache (model_executor/models/registry.py, 0.11 to 0.33). A server without them imports everything
    in one more process to look at the class, which took 20 s of the first start on an H200.

    `inherited`: the inspection's own environment, a person's `--env` in it. A place that cannot be read or written is no error.
    """
    if "VLLM_CACHE_ROOT" not in cache or "VLLM_CACHE_ROOT" in inherited:
        return  # the server's own is where the inspection left them
    target = Path(cache["VLLM_CACHE_ROOT"]) / CLASSES
    with contextlib.suppress(OSError):  # then vLLM looks for itself
        for path in sorted((usual_cache(inherited) / CLASSES).glob("*.json")):
            if not (target / path.name).exists():
                write_atomically(target / path.name, path.read_bytes())


def usual_cache(inherited: Mapping[str, str]) -> Path:
    """Where vLLM keeps its files with this environment (envs.py). A user without a home, as containers have, is no error there."""
    home = inherited.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 (Path's own raises where there is none)
    return Path(inherited.get("XDG_CACHE_HOME") or f"{home}/.cache") / "vllm"


def renewed_cache(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """An empty cache for this and all later launches of the study. The broken one is left: another server may be using it."""
    path = folder / f"{STUDY}-{len(_generations(folder)) + 1}"
    path.mkdir(parents=True)
    return _below(path, inherited)


def _below(path: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    root = path.resolve()
    return {"VLLM_CACHE_ROOT": str(root)} | ({} if TRITON in inherited else {TRITON: str(root / "triton")})


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
        TRITON: str(root / "triton"),
        "FLASHINFER_WORKSPACE_BASE": str(root),
    }


def has_proof_cache(folder: Path) -> bool:
    return (folder / PROOF).is_dir()


def forget_proof_cache(folder: Path) -> None:
    """It is as large as the compiled code of one configuration, and of no use after the proof."""
    shutil.rmtree(folder / PROOF, ignore_errors=True)
