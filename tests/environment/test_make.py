"""What `make` would do, asked with `make -n` in a copy of the set-up files: nothing is installed here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that decide what make does."""
    for name in ("tools", "constraints"):
        shutil.copytree(ROOT / name, tmp_path / "tree" / name)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path / "tree" / name)
    return tmp_path / "tree"


def make(tree: Path, *arguments: str) -> str:
    """Output of `make -n`, free of what the surrounding `make test` put into the environment."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    done = subprocess.run(["make", "-n", *arguments], cwd=tree, env=kept, capture_output=True, text=True, check=True)
    return done.stdout


def install(tree: Path, venv: str, *stamps: str) -> None:
    """Leave the marks of a finished installation."""
    (tree / venv / ".done").mkdir(parents=True)
    for stamp in stamps:
        (tree / venv / ".done" / stamp).touch()


def test_tune_installs_first_then_runs(tree):
    steps = make(tree, "tune", "MACHINE=cpu")
    assert steps.index("make_venv.sh") < steps.index("install_engine.sh .venv cpu") < steps.index("tune.sh .venv cpu")


def test_a_second_tune_installs_nothing(tree):
    install(tree, ".venv", "venv", "engine-cpu", "advisor")
    assert make(tree, "tune", "MACHINE=cpu").splitlines() == ["bash tools/tune.sh .venv cpu"]


def test_new_pins_are_installed(tree):
    install(tree, ".venv", "venv", "engine-cpu", "advisor")
    later = (tree / ".venv/.done/engine-cpu").stat().st_mtime + 10
    os.utime(tree / "constraints/cpu.txt", (later, later))
    assert "install_engine.sh .venv cpu" in make(tree, "tune", "MACHINE=cpu")


def test_a_gpu_gets_the_cuda_engine_and_tests_get_the_cpu_one_beside_it(tree):
    assert "install_engine.sh .venv cuda" in make(tree, "tune", "MACHINE=cuda")
    assert "tune.sh .venv-cpu cpu" in make(tree, "tune", "MACHINE=cuda", "GPU=cpu")
    assert "install_engine.sh .venv-cpu cpu" in make(tree, "_test", "MACHINE=cuda", "ENGINE=cpu")


def test_an_engine_of_ones_own_is_left_alone(tree):
    assert "install_engine.sh .venv none" in make(tree, "tune", "MACHINE=cuda", "ENGINE_PYTHON=/opt/vllm/bin/python")


def test_unit_tests_take_the_engine_that_is_there(tree):
    install(tree, ".venv", "venv", "engine-cpu", "advisor", "tools")
    assert "install_engine.sh" not in make(tree, "unit", "MACHINE=cpu")


def test_a_path_with_a_space_puts_the_environment_elsewhere(tree):
    spaced = tree.parent / "with space"
    tree.rename(spaced)
    steps = make(spaced, "tune", "MACHINE=cpu", "HOME=/home/someone")
    assert "make_venv.sh /home/someone/.cache/advisor/" in steps


@pytest.mark.parametrize("target", ["tune", "test", "unit", "lint", "pins", "clean", "help"])
def test_target_exists(tree, target):
    assert make(tree, target)
