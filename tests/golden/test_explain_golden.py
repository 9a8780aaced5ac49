"""The golden set of `advisor explain`: every folder of tests/golden/explain is one case, see the README.md there.

The command runs in this process, from the rules alone: no vLLM is asked, so that the answers do not depend on what is
installed. An expectation is a fact about a release of vLLM; where the answer differs from it, the answer is wrong.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.cli import app
from advisor.inspection import serve_command

ROOT = Path(__file__).parent / "explain"
CASES = sorted(path.parent for path in ROOT.glob("*/expected.json"))
INPUTS = ("command.txt", "config.yaml", "manifest.yaml")
CASE_KEYS = {"vllm_version", "gpu"}
EXPECTED_KEYS = {
    "because", "exit", "vllm_version", "resolved", "origins", "capture_list", "coverage",
    "finding_codes", "any_finding_codes", "no_finding_codes",
}  # fmt: skip
# The stable codes of findings, which the set must hold once as present; scripts of users rely on their names.
CODES = [
    "json-lost-to-dotted-key",
    "mixed-dotted-spellings",
    "two-json-values",
    "config-equals-not-read",
    "yaml-false-dropped",
    "yaml-map-lost-to-dotted-key",
    "yaml-nested-map-not-supported",
    "boolean-with-value",
    "option-removed",
    "option-renamed",
    "option-unknown",
    "env-backend-ignored",
    "env-backend-clash",
    "env-backend-beats-config",
    "env-unknown",
    "eager-with-graph-settings",
    "graph-mode-rewritten",
    "graph-mode-refused",
    "capture-maximum-truncated",
    "capture-list-and-maximum-disagree",
    "capture-size-set-twice",
    "capture-size-above-batched-tokens",
    "capture-list-emptied-by-speculation",
    "capture-sizes-comma-separated",
    "operating-point-not-covered",
    "backend-invalid",
    "backend-unknown",
    "level-removed",
    "level-deprecated",
    "quotes-inside-argument",
    "quoted-json-literal",
    "bare-compilation-level",
    "optimization-o3-equals-o2",
    "warmups-always-reset",
    "graphs-on-cpu",
    "batched-tokens-below-seqs",
    "batched-tokens-below-length",
    "dbo-needs-deepep",
    "old-engine",
    "value-invalid",
    "version-not-read",
    "option-given-twice",
    "dtype-not-supported",
    "cascade-removed",
    "short-o-dotted-removed",
]


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def arguments(folder: Path) -> list[str]:
    """What stands after `advisor`, for the case's files."""
    case = read(folder / "case.json")
    words = ["explain", "--json", "--vllm-version", case["vllm_version"]]
    words += ["--gpu", case["gpu"]] if "gpu" in case else []
    words += ["--model-config", "model.json"] if (folder / "model.json").exists() else []
    if (folder / "command.txt").exists():
        return [*words, "--", *shlex.split((folder / "command.txt").read_text())]
    option = "--config" if (folder / "config.yaml").exists() else "--k8s"
    return [*words, option, "config.yaml" if option == "--config" else "manifest.yaml"]


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_case(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(folder / "expected.json")
    monkeypatch.chdir(folder)  # a command may name a file beside it
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(serve_command, "installed_version", lambda python: None)
    result = CliRunner().invoke(app, [*arguments(folder)], catch_exceptions=True)
    assert result.exit_code in (0, 1), f"{result.output}{result.exception!r}"
    answer = json.loads(result.stdout)
    differences = compare(expected, answer, result.exit_code)
    assert not differences, "\n".join([*differences, f"because: {expected['because']}"])


def compare(expected: dict[str, Any], answer: dict[str, Any], exit_code: int) -> list[str]:
    """One line for each expectation that the answer does not meet."""
    codes = [finding["code"] for finding in answer["findings"]]
    wrong = []
    if expected.get("exit", exit_code) != exit_code:
        wrong.append(f"exit: expected {expected['exit']}, is {exit_code}; findings {codes}")
    if expected.get("vllm_version", answer["vllm_version"]) != answer["vllm_version"]:
        wrong.append(f"vllm_version: expected {expected['vllm_version']}, is {answer['vllm_version']}")
    for part in ("resolved", "origins", "coverage"):
        for name, value in expected.get(part, {}).items():
            found = answer[part][name]
            if name == "cudagraph_capture_sizes" and found is not None:
                found = sorted(found)  # until 0.11.0 vLLM keeps the list descending
            if found != value:
                wrong.append(f"{part}.{name}: expected {value}, is {found}")
    if "capture_list" in expected:
        sizes = sorted(answer["resolved"]["cudagraph_capture_sizes"] or [])
        found = {"count": len(sizes), "begins": sizes[:5], "ends": sizes[-3:]}
        wrong += [f"capture_list: expected {expected['capture_list']}, is {found}"] * (
            found != expected["capture_list"]
        )
    wrong += [
        f"finding {code} is missing; found {codes}" for code in expected.get("finding_codes", ()) if code not in codes
    ]
    wrong += [
        f"finding {code} is there but should not" for code in expected.get("no_finding_codes", ()) if code in codes
    ]
    for alternatives in expected.get("any_finding_codes", ()):
        wrong += [f"none of {alternatives} is there; found {codes}"] * (not set(alternatives) & set(codes))
    return wrong


@pytest.mark.parametrize(
    "folder", [path for path in sorted(ROOT.iterdir()) if path.is_dir()], ids=lambda folder: folder.name
)
def test_folder_is_complete(folder: Path) -> None:
    """A typing mistake in a case must not turn it into one that tests nothing."""
    assert sum((folder / name).exists() for name in INPUTS) >= 1
    assert set(read(folder / "case.json")) <= CASE_KEYS
    expected = read(folder / "expected.json")
    assert set(expected) <= EXPECTED_KEYS
    assert len(expected["because"]) > 20
    assert set(expected) - {"because"}
    for name in ("finding_codes", "no_finding_codes"):
        assert not {code for code in expected.get(name, ()) if code not in CODES}


def test_set_is_broad_enough() -> None:
    cases = [read(folder / "expected.json") for folder in CASES]
    present = {code for case in cases for code in case.get("finding_codes", ())}
    absent = {code for case in cases for code in case.get("no_finding_codes", ())}
    assert len(CASES) >= 100
    assert len({read(folder / "case.json")["vllm_version"] for folder in CASES}) >= 14
    assert not [code for code in CODES if code not in present]
    assert not [code for code in CODES if code not in absent]


def test_comparison_can_fail() -> None:
    answer = {
        "vllm_version": "0.26.0", "findings": [{"code": "env-unknown"}], "coverage": {}, "origins": {},
        "resolved": {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2]},
    }  # fmt: skip
    expected = {
        "exit": 0, "resolved": {"cudagraph_mode": "NONE"}, "finding_codes": ["backend-invalid"],
        "no_finding_codes": ["env-unknown"], "any_finding_codes": [["a", "b"]],
        "capture_list": {"count": 3, "begins": [1, 2, 4], "ends": [1, 2, 4]},
    }  # fmt: skip
    assert len(compare(expected, answer, exit_code=1)) == 6
    assert (
        compare({"resolved": {"cudagraph_mode": "FULL"}, "finding_codes": ["env-unknown"]}, answer, exit_code=1) == []
    )
