"""The shipped spaces, spaces that extend them, and the schema that editors check files against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from advisor.engine.writing.spelling_table import TABLE
from advisor.errors import InputError
from advisor.resources import search_space_path, search_spaces_folder
from advisor.space.spec import SCHEMA_FILE, load_space, schema_text

SHIPPED = ("default", "scheduler", "full", "cpu")
RECORDED = sorted((Path(__file__).parents[2] / "benchmarks").glob("*_space.yaml"))
HEAD = "schema: advisor.space/1\nname: mine\n"


def written(tmp_path, text, name="space.yaml"):
    path = tmp_path / name
    path.write_text(HEAD + text)
    return str(path)


def told(text):
    with pytest.raises(InputError) as caught:
        load_space(text)
    return caught.value.problem + "\n" + (caught.value.hint or "")


# ---------------------------------------------------------------- what is shipped


def test_each_space_adds_to_the_one_before():
    default, scheduler, full = (list(load_space(name).settings) for name in SHIPPED[:3])
    assert scheduler == [*default, "performance_mode", "max_num_seqs", "max_num_batched_tokens", "async_scheduling", "block_size"]
    added = full[len(scheduler) :]
    assert full[: len(scheduler)] == scheduler
    assert {"inductor_graph_partition", "flash_attention_version", "flash_attention_splits"} <= {*added}
    assert {"kv_cache_dtype", "compile_sizes"} <= {*added}
    assert {name for name in added if name.startswith("fuse_")} == {name for name in TABLE if name.startswith("fuse_")}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_value_has_a_reason_and_a_spelling_in_every_release(name):
    for setting, spec in load_space(name).settings.items():
        assert len(spec.why) > 10, setting
        assert setting in TABLE or setting.isupper(), f"{setting} is spelled as one release spells it"
        assert spec.values == "legal" or spec.values[0] == "default"


@pytest.mark.parametrize("name", SHIPPED)
def test_files_name_the_schema_and_obey_it(name):
    text = search_space_path(name).read_text()
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")
    pytest.importorskip("jsonschema").validate(yaml.safe_load(text), json.loads(schema_text()))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_spaces_of_the_benchmarks_load_and_obey_the_schema(path):
    assert load_space(str(path)).settings
    pytest.importorskip("jsonschema").validate(yaml.safe_load(path.read_text()), json.loads(schema_text()))


def test_the_schema_in_the_folder_is_the_models_own():
    """Written by `python -m advisor.space.spec`."""
    assert (search_spaces_folder() / SCHEMA_FILE).read_text() == schema_text()


@pytest.mark.parametrize(
    "text",
    [
        "settings: {enforce-eager: {values: [true]}}",
        "settings: {enforce_eager: {value: [true]}}",
        "setting: {}",
        "drop: enforce_eager",
        "settings: {enforce_eager: {values: []}}",
        "settings: {enforce_eager: {values: legal}}",
        "settings: {enforce_eager: {values: [true, default]}, cudagraph_mode: {values: [FULL], when: {enforce_eager: []}}}",
        "fix: {enforce_eager: default}",
        "fix: {enforce_eager: null}",
        "settings: {-O: {values: [default, 3]}}",
        "settings: {--a b: {values: [default, 3]}}",
        "settings: {--port: {values: [default, 99]}}",
        "settings: {--served_model_name: {values: [default, x]}}",
        "fix: {--model: x}",
        "settings: {}",
        "extends: null",
        "",
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(HEAD + text), json.loads(schema_text()))
    with pytest.raises(InputError):
        load_space(written(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "settings: {--max_num_seqs: {values: [default, 8]}}",
        "settings: {--compilation-config.mode: {values: [default, 3]}}",
        "settings: {--compilation-config: {values: [default, {mode: 3}]}}",
        "settings: {attention_backend: {values: legal}}",
        "settings: {enforce_eager: {values: [true, default]}, cudagraph_mode: {values: [FULL], when: {enforce_eager: [default]}}}",
        "fix: {--max-num-seqs: 8}",
        "extends: default",
    ],
)
def test_the_schema_takes_what_the_reader_takes(text, tmp_path):
    assert load_space(written(tmp_path, text)).settings
    pytest.importorskip("jsonschema").validate(yaml.safe_load(HEAD + text), json.loads(schema_text()))


def test_what_the_launch_sets_itself_is_refused_by_name(tmp_path):
    text = "fix: {--host: 0.0.0.0}\nsettings:\n  --served_model_name: {values: [default, x]}\n  --port: {values: [default, 99]}\n"
    said = told(written(tmp_path, text))
    for line, name in ((3, "--host"), (5, "--served_model_name"), (6, "--port")):
        assert f"line {line}: {name} may not be searched or fixed: the advisor sets that for each launch" in said


# ---------------------------------------------------------------- a person's own


def test_a_space_of_ones_own_adds_drops_fixes_and_changes(tmp_path):
    path = written(
        tmp_path,
        "extends: scheduler\n"
        "drop: [block_size, performance_mode]\n"
        "fix: {VLLM_USE_V2_MODEL_RUNNER: 0}\n"
        "settings:\n"
        "  cudagraph_mode: {values: [default, FULL]}\n"
        "  --long-prefill-token-threshold: {values: [default, 512], why: mixed lengths}\n",
    )
    space, base = load_space(path).settings, load_space("scheduler").settings
    names = [name for name in base if name not in ("block_size", "performance_mode")]
    assert list(space) == ["VLLM_USE_V2_MODEL_RUNNER", *names, "--long-prefill-token-threshold"]
    assert space["VLLM_USE_V2_MODEL_RUNNER"].values == [0]
    assert space["cudagraph_mode"].values == ["default", "FULL"]
    assert space["cudagraph_mode"].when == base["cudagraph_mode"].when and space["cudagraph_mode"].why == base["cudagraph_mode"].why
    assert space["max_num_seqs"].when == {}  # its condition was on what is dropped, and holds for vLLM's own choice


def test_a_changed_setting_loses_the_condition_on_what_is_dropped(tmp_path):
    text = "extends: scheduler\ndrop: [performance_mode]\nsettings: {max_num_seqs: {values: [default, 8]}}\n"
    setting = load_space(written(tmp_path, text)).settings["max_num_seqs"]
    assert setting.when == {} and setting.values == ["default", 8]


def test_what_a_fixed_setting_makes_impossible_goes_without_a_word(tmp_path):
    space = load_space(written(tmp_path, "extends: default\nfix: {enforce_eager: true}\n")).settings
    assert list(space) == ["enforce_eager", "attention_backend"]


def test_files_extend_files_that_lie_beside_them(tmp_path, monkeypatch):
    (tmp_path / "team").mkdir()
    written(tmp_path, "extends: default\ndrop: [enforce_eager]\n", "team/base.yaml")
    path = written(tmp_path, "extends: ./base.yaml\ndrop: [attention_backend]\n", "team/mine.yaml")
    monkeypatch.chdir("/")
    assert not {"enforce_eager", "attention_backend"} & set(load_space(path).settings)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("extends: nothing\n", "'nothing' does not exist"),
        ("extends: default\ndrop: [block_size]\n", "line 4: cannot drop 'block_size': 'default' has no setting of that name"),
        ("drop: [block_size]\nsettings: {enforce_eager: {values: [true]}}\n", "nothing is extended"),
        ("extends: default\ndrop: [enforce_eager]\nfix: {enforce_eager: true}\n", "'enforce_eager' is dropped and given at once"),
        ("fix: {block_size: 64}\nsettings: {block_size: {values: [32]}}\n", "line 3: 'block_size' is fixed and searched at once"),
        ("fix: {block_size: default}\n", "to leave it to vLLM, put it under `drop`"),
        ("extends: default\nfix: {blocksize: 64}\n", "line 4: unknown setting 'blocksize'"),
        (
            "settings:\n  block_size: {values: [32]}\n  --block-size: {values: [64]}\n",
            "line 5: --block-size is the same setting as block_size",
        ),
        (
            "extends: default\nsettings:\n  compile_sizes: {values: [[8]], when: {enforce_eager: [false]}}\n",
            "line 5: compile_sizes: contradictory",
        ),
        ("extends: mine.yaml\n", "extends itself"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, part):
    assert part in told(written(tmp_path, text, "mine.yaml"))


def test_mistakes_of_the_extended_file_are_told_with_its_name(tmp_path):
    written(tmp_path, "settings: {nonsense: {values: [1]}}\n", "base.yaml")
    said = told(written(tmp_path, "extends: base.yaml\n", "mine.yaml"))
    assert "base.yaml" in said and "unknown setting 'nonsense'" in said


def test_the_example_of_the_documentation_is_read(tmp_path):
    text = (search_spaces_folder().parent / "docs" / "search-space.md").read_text()
    lines = [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]
    path = tmp_path / "doc.yaml"
    path.write_text("\n".join(lines))
    assert "--long-prefill-token-threshold" in load_space(str(path)).settings
    for name in SHIPPED:
        assert f"../search_spaces/{name}.yaml" in text
