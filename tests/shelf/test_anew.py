"""`python -m benchmarks.shelf --anew`: profiles whose model folder has changed since they were measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.journal import Study
from advisor.records.json_shape import fingerprint
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.store import read_profile
from benchmarks import shelf
from benchmarks.model_folders import ARCHITECTURES, COMMON, demo_model
from benchmarks.shelf_anew import has_earlier_folder
from benchmarks.shelf_table import table
from tests.shelf_help import LLAMA, ROOT, main, write_list

EARLIER = "61817ee3158a8155"  # of the committed profile
EMPTY = "\ndecision:\n  outcome: inconclusive\n  reason: no other setting was tried\n  launches_per_arm: 0\n"


def measured_with(config_hash: str) -> Profile:
    profile = read_profile(LLAMA)
    return profile.model_copy(update={"model": profile.model.model_copy(update={"config_hash": config_hash})})


def test_the_hash_is_that_of_the_folder_or_of_what_would_be_written(tmp_path: Path):
    today = fingerprint({**COMMON, **ARCHITECTURES["Llama-3.1-8B"]})
    assert not has_earlier_folder(measured_with(today)) and not has_earlier_folder(measured_with(today), tmp_path)
    assert has_earlier_folder(measured_with(EARLIER))
    (tmp_path / "Llama-3.1-8B").mkdir()
    (tmp_path / "Llama-3.1-8B" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert has_earlier_folder(measured_with(today), tmp_path)
    assert not has_earlier_folder(measured_with(fingerprint({"model_type": "llama"})), tmp_path)


@pytest.mark.parametrize("update", [{"id": "meta-llama/Llama-3.1-8B"}, {"local_folder": False}])
def test_a_model_that_is_not_made_here_has_no_earlier_folder(update: dict[str, object]):
    profile = measured_with("0" * 16)
    assert not has_earlier_folder(profile.model_copy(update={"model": profile.model.model_copy(update=update)}))


def test_the_demo_models_have_hashes_too():
    profile = measured_with(fingerprint(demo_model.config("tiny")))
    tiny = profile.model_copy(update={"model": profile.model.model_copy(update={"id": "tiny"})})
    assert not has_earlier_folder(tiny)


@pytest.fixture
def earlier(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile of an earlier folder of the 8B; a tune that is run now measures the folder that is there."""
    config = {**COMMON, **ARCHITECTURES["Llama-3.1-8B"]}
    (place / "models/Llama-3.1-8B/config.json").write_text(json.dumps(config))
    path = place / "profiles/h200/first.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(LLAMA.read_text().replace(fingerprint(config), EARLIER))
    (place / "new.yaml").write_text(LLAMA.read_text().replace(EARLIER, fingerprint(config)))
    monkeypatch.setenv("PROFILE", str(place / "new.yaml"))
    return path


def test_only_anew_replaces_it_and_the_new_one_is_not_made_again(earlier: Path, place: Path, capsys):
    path = write_list(place, first=1)
    assert main("--shelf", path, "--list") == 0
    listed = capsys.readouterr().out.rstrip()
    assert listed.endswith("; profile is there, measured with an earlier model folder: --anew")
    assert main("--shelf", path) == 0 and "every profile is there" in capsys.readouterr().out
    assert read_profile(earlier).model.config_hash == EARLIER
    assert main("--shelf", path, "--anew") == 0 and "first: done" in capsys.readouterr().out
    assert read_profile(earlier).model.config_hash != EARLIER
    assert main("--shelf", path, "--list") == 0 and capsys.readouterr().out.rstrip().endswith("; profile is there")
    assert main("--shelf", path, "--anew") == 0 and "every profile is there" in capsys.readouterr().out


def test_it_stays_where_no_new_one_comes(earlier: Path, place: Path, monkeypatch, capsys):
    before = earlier.read_text()
    broken = earlier.with_name("broken.yaml")
    broken.write_text(before)
    text = (place / "new.yaml").read_text()
    decision = text.index("\ndecision:"), text.index("\n# What to serve with.")
    (place / "empty.yaml").write_text(text[: decision[0]] + EMPTY + text[decision[1] :])
    monkeypatch.setenv("PROFILE", str(place / "empty.yaml"))
    assert main("--shelf", write_list(place, first=1, broken=1), "--anew") == 1
    said = capsys.readouterr().out
    assert "nothing was compared with the default" in said and "vLLM refuses the baseline" in said
    assert earlier.read_text() == before and broken.read_text() == before


def test_the_advisor_does_not_mix_launches_of_two_folders(tmp_path: Path):
    """Its refusal is the one that makes the shelf take the next study."""
    folder = tmp_path / "study"
    shutil.copytree(ROOT / "docs/evidence/studies/Llama-3.1-8B-h200-chat", folder)
    identity = json.loads((folder / "study.json").read_text())["identity"]
    with pytest.raises(InputError) as refused:
        Study(folder, "first", {**identity, "config": "today"})
    assert f"{shelf._OF_ANOTHER}config" in refused.value.problem and refused.value.exit_code == shelf._WRONG


def test_launches_of_both_folders_are_in_studies_of_their_own(earlier: Path, place: Path, capsys):
    """`advisor tune` refuses the first study, as it does for another machine; its name has `other` for the stand-in."""
    earlier.rename(earlier.with_name("other.yaml"))
    assert main("--shelf", write_list(place, other=1), "--anew") == 0
    assert (place / "runs/shelf/other-h200").exists() and (place / "runs/shelf/other-h200-2").exists()


def test_what_a_new_one_takes_is_all_of_it(earlier: Path, place: Path, capsys):
    """However far the earlier folder's study is."""
    (place / "runs/shelf/first-h200").mkdir(parents=True)
    assert main("--shelf", write_list(place, first=30), "--anew", "--budget", "5m") == 0
    assert "first: no time: about 30m00s needed" in capsys.readouterr().out


def test_the_table_marks_it(earlier: Path, place: Path):
    marked = "| random, [earlier folder](#earlier-model-folders) |"
    assert marked in table(place / "profiles", [])[-1]
    earlier.write_text((place / "new.yaml").read_text())
    assert marked not in table(place / "profiles", [])[-1] and "| random |" in table(place / "profiles", [])[-1]
