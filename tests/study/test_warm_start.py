"""The nearest profiles: which are taken, what they say, and what a person is told."""

import dataclasses
import math
import shutil
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.records import BackendFacts, Candidate, EngineFacts, Facts, GpuFacts, ModelFacts, Objective, Workload
from advisor.request import TuneRequest, _profiles
from advisor.resources import profiles_folder
from advisor.search.budget import Budget
from advisor.space.choices import Limits, SettingChoices
from advisor.study.warm_start import figures, known_figures, nearest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "profiles" / "h200" / "Llama-3.1-8B-chat.yaml"
FACTS = Facts(
    GpuFacts("cuda", "NVIDIA H200", "h200", 1, 140.4, "9.0"),
    EngineFacts("py", "3.12", "0.26.0", "2.11.0", "cuda", backends=(BackendFacts("FLASH_ATTN"),)),
    ModelFacts("/models/Llama-3.1-8B", "LlamaForCausalLM", "61817ee3158a8155", 32, 4096, 32, 8, 128, 128256, 4096),
)
CHAT = Workload("chat", 1024, 128, 256, concurrency=64, length_spread=0.2)
SETTINGS = (
    SettingChoices("enforce_eager", (None, True)),
    SettingChoices("attention_backend", (None, "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")),
)


class Space:
    settings = SETTINGS


def request(tmp_path, **changes):
    words = {"workload": CHAT, "output": tmp_path / "out", **changes}
    return TuneRequest("m", "auto", budget=Budget(600.0), engine_python="py", **words)


def found(tmp_path, facts=FACTS, own=None, **changes):
    return known_figures(request(tmp_path, **changes), facts, Space(), Limits(256, 8192), own)


def test_the_repositorys_profiles_come_with_the_advisor_and_say_where_figures_are_from(tmp_path):
    known = found(tmp_path)
    path = profiles_folder() / "h200" / "Llama-3.1-8B-chat.yaml"
    near = "same model, same GPU, same load, 1.0 of 1.0 near"
    assert known.notes == (f"first candidates from {path} ({near}): 11 figures, keep-defaults",)


def test_figures_are_ratios_to_the_profiles_default_and_surer_the_nearer_it_is(tmp_path):
    ((near, _, _, profile),) = nearest(request(tmp_path), FACTS)
    points = {point.candidate.label: point for point in figures(profile, near, SETTINGS)}
    eager = points["enforce_eager"]
    assert eager.candidate == Candidate({"enforce_eager": True})
    assert eager.value == pytest.approx(math.log(1672 / 3268), abs=0.001) and eager.sd == pytest.approx(0.02)
    far = {point.candidate.label: point for point in figures(profile, 0.5, SETTINGS)}
    assert far["enforce_eager"].sd > 8 * eager.sd and far["attention_backend=FLASHINFER"].sd > 2 * eager.sd


def test_too_far_is_not_taken(tmp_path):
    another = dataclasses.replace(FACTS, model=dataclasses.replace(FACTS.model, model="m-70B", architecture="X", config_hash="y"))
    assert found(tmp_path, another).notes == ()
    cpu = dataclasses.replace(FACTS, gpu=dataclasses.replace(FACTS.gpu, slug="cpu"))
    assert found(tmp_path, cpu).notes == ()
    assert found(tmp_path, objective=Objective("ttft_ms.p99")).notes == ()


def test_a_folder_of_ones_own_and_none(tmp_path):
    mine = tmp_path / "mine" / "h200"
    mine.mkdir(parents=True)
    shutil.copy(FILE, mine / "a.yaml")
    (mine / "broken.yaml").write_text("schema: advisor.profile/99\n")
    (mine / "other.yaml").write_text("{[")
    assert str(mine / "a.yaml") in found(tmp_path, profiles=(tmp_path / "mine",)).notes[0]
    assert str(mine / "a.yaml") in found(tmp_path, profiles=(mine / "a.yaml",)).notes[0]
    assert found(tmp_path, profiles=()).notes == ()


def test_the_study_that_wrote_a_profile_does_not_learn_from_it(tmp_path):
    own = ("Llama-3.1-8B-h200-chat", "2026-11-29T23:52:16+00:00")
    assert found(tmp_path, own=own).notes == ()
    assert found(tmp_path, own=(own[0], "2026-12-01T00:00:00+00:00")).notes


def test_words_of_the_option(tmp_path):
    assert _profiles(None) is None and _profiles("none") == () and _profiles(str(tmp_path)) == (tmp_path,)
    with pytest.raises(InputError, match="--profiles 'nowhere' does not exist"):
        _profiles("nowhere")
