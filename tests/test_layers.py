"""Imports point downward, and the advisor's own process imports neither vLLM nor torch."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "advisor"
# A file may import from its own folder and from lower ranks.
RANKS = [
    {"errors", "records", "__init__"},
    {"units", "progress", "student_t"},
    {"yaml_files", "resources", "target_process", "journal", "nvml"},
    {"engine"},
    {"inspection", "launch", "measure", "space"},
    {"search", "runner"},
    {"verdict"},
    {"serving_profile"},
    {"stepping"},
    {"export", "report", "request"},
    {"study"},
    {"tune", "recording", "attention", "anatomy", "verification", "cli_options", "cli_output"},
    {"cli_steps", "cli_grids"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
FILES = [path for path in PACKAGE.rglob("*.py") if "target" not in path.parts and "search_spaces" not in path.parts]


def stage(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def ours(name: str) -> str:
    return name.split(".")[1] if "." in name else "__init__"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downward(path):
    for name in imported(path):
        top = name.split(".")[0]
        assert top not in {"vllm", "torch", "transformers"}, f"{path.name} imports {name}"
        if top == "advisor":
            other = ours(name) if ours(name) in RANK else "__init__"
            assert other == stage(path) or RANK[other] < RANK[stage(path)], f"{stage(path)} imports {other}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "target").glob("*.py")), ids=lambda path: path.name)
def test_target_scripts_import_nothing_of_ours(path):
    assert not [name for name in imported(path) if name.split(".")[0] == "advisor"]


def test_only_one_file_knows_optuna():
    users = [path.relative_to(PACKAGE) for path in FILES if any(name.split(".")[0] == "optuna" for name in imported(path))]
    assert [str(path) for path in users] == ["search/sampler.py"]
