"""The gate on recorded answers of real servers: other kernels, graphs and modes pass, broken weights do not (tests/data/gate)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from advisor.measure.answers import Answers
from advisor.records import from_json
from advisor.verdict.gate_distance import KINDS
from advisor.verdict.output_gate import compare, judge_baseline

DATA = Path(__file__).resolve().parents[1] / "data" / "gate"
FILES = sorted(path.relative_to(DATA) for path in DATA.rglob("*.json.gz"))
BASELINES = [path for path in FILES if path.name.startswith("default")]


def recorded(path: Path) -> Answers:
    return from_json(Answers, json.loads(gzip.decompress((DATA / path).read_bytes())))


def cases() -> list[tuple[Path, Path]]:
    """Every launch of a baseline with every other launch of the same model."""
    return [(base, other) for base in BASELINES for other in FILES if other.parent == base.parent and other != base]


def named(path: Path) -> str:
    return str(path).removesuffix(".json.gz")


@pytest.mark.parametrize("base", BASELINES, ids=named)
def test_every_baseline_passes_its_own_gate(base):
    own = judge_baseline([recorded(base)], random_weights=True)
    assert own.passed, own.reason
    hidden = any("rounding hides" in note for note in own.notes)
    assert hidden == ("dummy" in str(base)) or "h200" in str(base)  # h200: no two prompts shared a forced token


@pytest.mark.parametrize(("base", "other"), cases(), ids=named)
def test_sound_servers_pass_and_broken_ones_fail_with_one_launch_of_the_baseline(base, other):
    result = compare([recorded(base)], recorded(other), random_weights=True)
    wrong = other.name.startswith("wrong")
    assert result.passed is not wrong, (result.reason, result.distance)
    assert set(result.distance) == set(KINDS)


def test_baselines_of_one_model_agree():
    by_model = {path.parent: [recorded(base) for base in BASELINES if base.parent == path.parent] for path in BASELINES}
    for model, several in by_model.items():
        own = judge_baseline(several, random_weights=True)
        assert own.passed and own.baselines == len(several), model


def test_a_skipped_layer_makes_nearly_all_likeliest_tokens_others():
    one, other = recorded(Path("cpu-random/default.json.gz")), recorded(Path("cpu-random/wrong-layer-skipped.json.gz"))
    assert compare([one], other, random_weights=True).distance["likeliest"] > 0.8


def test_the_limits_have_room_on_both_sides():
    """The nearest to a limit on either side. Broken ones exceed one limit at least; sound ones stay below all."""
    sound, broken = [], []
    for base, other in cases():
        result = compare([recorded(base)], recorded(other), random_weights=True)
        shares = {name: result.distance[name] / result.limit[name] for name in result.distance}
        (broken if other.name.startswith("wrong") else sound).append((max(shares.values()), named(other)))
    assert max(sound)[0] < 0.75, max(sound)
    assert min(broken)[0] > 1.4, min(broken)
