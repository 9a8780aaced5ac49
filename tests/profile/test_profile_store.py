"""Profiles on disk: mistakes are named with their line, writing is all or nothing."""

from __future__ import annotations

import os
import resource
from dataclasses import replace

import pytest
import yaml

from advisor.errors import InputError
from advisor.records import Objective
from advisor.search.goal import parse_goal
from advisor.serving_profile.schema import MIGRATIONS, SCHEMA, Profile, schema_version
from advisor.serving_profile.store import check_writable, profile_path, read_profile, write_profile
from advisor.serving_profile.text import profile_text


@pytest.fixture
def written(tmp_path, profile):
    path = tmp_path / "h200" / "model-chat.yaml"
    write_profile(path, profile)
    return path


def problem(path) -> str:
    with pytest.raises(InputError) as caught:
        read_profile(path)
    return "\n".join(filter(None, [caught.value.problem, caught.value.hint]))


def change(path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def line_of(path, text: str) -> int:
    return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if line.strip().startswith(text))


def test_round_trip(written, profile):
    assert read_profile(written) == profile
    assert [item.name for item in written.parent.iterdir()] == [written.name]


def test_all_mistakes_at_once_with_their_lines(written):
    change(written, "num_prompts: 256", "num_promts: 256")
    change(written, "memory_gib: 139.8", "memory_gib: much")
    message = problem(written)
    assert f"line {line_of(written, 'num_promts')}" in message and "num_promts" in message
    assert "'num_prompts' is missing" in message
    assert f"line {line_of(written, 'memory_gib')}" in message and "gpu.memory_gib" in message


def test_yaml_error_names_the_line(written):
    change(written, "gpu:", "gpu: [")
    assert "line" in problem(written) and "not valid YAML" in problem(written)


def test_newer_schema_is_refused_alone(written):
    change(written, SCHEMA, "advisor.profile/9")
    change(written, "num_prompts: 256", "something_new: 256")
    message = problem(written)
    assert "advisor.profile/9" in message and "newer" in message and "update the advisor" in message
    assert "something_new" not in message and "\n" not in message


@pytest.mark.parametrize("text", ["model: m\nmax-num-seqs: 8\nseed: 1\n", "- a\n", ""])
def test_what_is_no_profile_is_one_line(tmp_path, text):
    path = tmp_path / "cfg.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_profile(path)
    assert raised.value.problem == f"'{path}' is not an advisor profile: no `schema: advisor.profile/...`"
    assert raised.value.hint is None


@pytest.mark.parametrize("schema", ["advisor.study/1", "1", "advisor.profile/0", "advisor.profile/x"])
def test_other_files_are_refused(written, schema):
    change(written, SCHEMA, schema)
    assert "not a serving profile" in problem(written)


def test_older_schema_is_brought_forward(monkeypatch, profile):
    """As it will be once there is a version 2: version 1 called the model's id `name`."""
    monkeypatch.setattr("advisor.serving_profile.schema.SCHEMA_VERSION", 2)
    monkeypatch.setattr("advisor.serving_profile.schema.SCHEMA", "advisor.profile/2")
    monkeypatch.setitem(
        MIGRATIONS, 1, lambda data: {**data, "model": {"id": data["model"].pop("name"), **data["model"]}}
    )
    old = yaml.safe_load(profile_text(profile))
    old["model"]["name"] = old["model"].pop("id")
    assert Profile.model_validate(old).model == profile.model


def test_every_older_version_has_its_migration():
    assert sorted(MIGRATIONS) == list(range(1, schema_version(SCHEMA)))


def test_a_command_edited_without_its_options_is_refused(written):
    change(written, "    max-num-seqs: 512", "    max-num-seqs: 256")
    assert "command disagrees with args and env on: max-num-seqs" in problem(written)


@pytest.mark.parametrize("command", ["rm -rf x", "vllm serve", "vllm serve --max-num-seqs 1", "vllm serve 'm"])
def test_a_command_that_is_not_vllm_serve_is_refused(profile, command):
    data = profile.model_dump(mode="json", by_alias=True)
    data["serve"]["command"] = command
    with pytest.raises(ValueError, match=r"command|quotation"):
        Profile.model_validate(data)


def test_a_variable_that_a_shell_would_run_is_refused(profile):
    data = profile.model_dump(mode="json", by_alias=True)
    data["serve"]["env"] = {"X=1; reboot": "1"}
    with pytest.raises(ValueError, match="not the name of an environment variable"):
        Profile.model_validate(data)


def test_a_loser_cannot_be_called_tuned(profile):
    data = profile.model_dump(mode="json", by_alias=True)
    data["decision"]["outcome"] = "keep-defaults"
    with pytest.raises(ValueError, match="tuned does not belong to the decision"):
        Profile.model_validate(data)


def test_missing_file(tmp_path):
    assert "does not exist" in problem(tmp_path / "none.yaml")


def test_a_failed_write_leaves_the_old_file(written, profile, monkeypatch):
    before = written.read_text()

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write_profile(written, profile.model_copy(update={"gpu": profile.gpu.model_copy(update={"slug": "other"})}))
    assert written.read_text() == before
    assert [item.name for item in written.parent.iterdir()] == [written.name]


def test_check_writable_touches_nothing(written):
    before = (written.read_text(), written.stat().st_mtime_ns)
    check_writable(written)
    assert (written.read_text(), written.stat().st_mtime_ns) == before
    assert [item.name for item in written.parent.iterdir()] == [written.name]


def test_check_writable_notices_a_full_disk(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))  # an empty file can be made, a profile cannot
    try:
        with pytest.raises(InputError, match="cannot be written"):
            check_writable(tmp_path / "p.yaml")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_check_writable_makes_the_folders_and_no_file(tmp_path):
    path = tmp_path / "a" / "b" / "p.yaml"
    check_writable(path)
    assert path.parent.is_dir() and not list(path.parent.iterdir())


@pytest.mark.parametrize("spot", ["file/p.yaml", "folder", "n" * 300 + ".yaml"])
def test_check_writable_refuses(tmp_path, spot):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"cannot be written|is a folder"):
        check_writable(tmp_path / spot)


@pytest.mark.parametrize(
    ("model", "revision", "expected"),
    [
        ("/data/models/Synthetic-8B", None, "Synthetic-8B-chat.yaml"),
        ("/data/models/Synthetic-8B/", None, "Synthetic-8B-chat.yaml"),
        ("org/Model 1.5", "abc", "org-Model-1.5-chat.yaml"),
        ("../..", None, "model-chat.yaml"),
    ],
)
def test_profile_path(tmp_path, study, model, revision, expected):
    facts = replace(study.RESULT.facts, model=replace(study.RESULT.facts.model, model=model, revision=revision))
    assert profile_path(tmp_path, facts, study.RESULT.workload, Objective()) == tmp_path / "h200" / expected


@pytest.mark.parametrize(
    ("words", "stem"),
    [
        ((None, None, None), ""),
        (("output_tok_s", None, None), ""),
        (("requests_s", None, None), "-requests-s"),
        (("ttft_ms.p99", None, None), "-ttft-p99"),
        (("start_s", None, None), "-start-s"),
        (("output_tok_s,ttft_ms.p99", None, None), "-output-tok-s-ttft-p99"),
        ((None, "ttft_p99<500ms,tpot_p99<30.5ms", None), "-goodput-ttft500-tpot30.5"),
        ((None, "ttft_p99<600ms,tpot_p99<30.5ms", None), "-goodput-ttft600-tpot30.5"),
        ((None, "ttft_p90<500ms", None), "-goodput-ttft500p90"),
        (("output_tok_s", "ttft_p99<0.5s", None), "-output-tok-s-ttft500"),
        ((None, "tpot_p99<30ms", "concurrency"), "-max-concurrency-tpot30"),
        ((None, "tpot_p99<30ms", "rate"), "-max-rate-tpot30"),
        (("goodput", "tpot_p99<30ms", "rate"), "-goodput-max-rate-tpot30"),
    ],
)
def test_each_goal_has_a_profile_of_its_own(tmp_path, study, words, stem):
    path = profile_path(tmp_path, study.RESULT.facts, study.RESULT.workload, parse_goal(*words))
    assert path.name == f"Synthetic-8B-chat{stem}.yaml"
