"""The capture rules against the releases' own functions.

tests/data/capture holds what 28 releases answered when executed without their dependencies (tools/record_capture.py writes it
from unpacked wheels and compares random inputs too). The engine tests run the installed vLLM's functions themselves.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.versions import RELEASES, known_version, version_text
from tools.record_capture import by_rules, filled, packed, possible, random_case, same, summary, unpacked
from tools.release_capture import Release

RECORDED = Path(__file__).parents[1] / "data" / "capture"
CASES = json.loads((RECORDED / "cases.json").read_text())
SCRIPT = Path(__file__).with_name("installed_capture.py")


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """Where vLLM stops, only that it does: how far it came is no matter."""
    return {"error": True} if "error" in record else record


@pytest.mark.parametrize("version", RELEASES, ids=version_text)
def test_rules_give_what_the_release_gave(version):
    records = json.loads((RECORDED / f"{version_text(version)}.json").read_text())
    assert len(records) == len(CASES)
    compared = 0
    for case, record in zip(map(filled, CASES), records, strict=True):
        if record is None:
            assert not possible(case, version)
            continue
        compared += 1
        assert comparable(summary(case, by_rules(case, version))) == comparable(record), (version, case)
    assert compared >= 40


def test_records_hold_the_vectors_known_from_elsewhere():
    """Two figures a person can check by hand, so that a broken recording is noticed."""

    def answer(version: str, **case: Any) -> dict[str, Any]:
        return json.loads((RECORDED / f"{version}.json").read_text())[CASES.index(case)]

    assert len(unpacked(answer("0.10.2", max_num_seqs=256)["configured"])) == 67
    assert len(unpacked(answer("0.33.0", max_num_seqs=256)["configured"])) == 51
    assert answer("0.26.0", max_num_seqs=1024)["uncovered"] == [[513, 1024]]
    assert answer("0.29.0", max_num_seqs=12, max_num_batched_tokens=2048)["uncovered"] == [[9, 12]]
    assert answer("0.31.0", max_num_seqs=12, max_num_batched_tokens=2048)["uncovered"] == []


@pytest.mark.parametrize("seed", range(5))
def test_folding_of_lists_loses_nothing(seed):
    draw = random.Random(seed)
    sizes = sorted({draw.randint(1, 60) for _ in range(draw.randint(0, 40))})
    assert unpacked(packed(sizes)) == sizes
    assert unpacked(packed([])) == []
    assert packed([1, 2, 4, *range(8, 257, 8)]) == "1 2 4 8-256/8"


# ---------------------------------------------------------------- the installed vLLM


@pytest.fixture(scope="module")
def generated() -> list[dict[str, Any]]:
    draw = random.Random(32)
    return [filled(case) for case in CASES] + [filled(random_case(draw)) for _ in range(300)]


@pytest.fixture(scope="module")
def installed(engine_python, generated) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """(version and folder, results of the generated cases) of the installed vLLM's imported functions."""
    lines = "".join(json.dumps(case) + "\n" for case in generated)
    done = subprocess.run([engine_python, str(SCRIPT)], input=lines, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    first, *rest = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for result in rest:
        if "padded" in result:
            result["padded"] = {int(tokens): size for tokens, size in result["padded"].items()}
    return first, rest


@pytest.mark.engine
def test_rules_agree_with_the_installed_functions_on_runner_v1(installed, generated):
    about, results = installed
    version, note = known_version(about["version"])
    assert note is None
    assert len(results) == len(generated)
    compared = 0
    for case, result in zip(generated, results, strict=True):
        if not case["runner_v2"]:
            compared += 1
            assert same(result, by_rules(case, version)), (case, result)
    assert compared >= 150


@pytest.mark.engine
def test_rules_agree_with_the_installed_source_on_both_runners(installed, generated):
    about, _ = installed
    version, _ = known_version(about["version"])
    release = Release(Path(about["folder"]), version)
    for case in generated:
        assert same(release.run(case), by_rules(case, version)), case
