"""Search-space files: what is read, and what each mistake is answered with."""

import pytest

from advisor.errors import InputError
from advisor.space.spec import load_space

HEAD = "schema: advisor.space/1\nname: mine\nsettings:\n"


def written(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", ["default", "cpu"])
def test_shipped_spaces_load(name):
    assert load_space(name).name == name


def test_flags_and_environment_variables_are_settings(tmp_path):
    text = HEAD + "  --max-num-seqs: {values: [default, 64]}\n  VLLM_X: {values: [1, 2]}\n"
    assert list(load_space(written(tmp_path, text)).settings) == ["--max-num-seqs", "VLLM_X"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (HEAD + "  enforce_eager: {values: [true]}\n  eager: {values: [true]}\n", "line 5: unknown setting 'eager'"),
        (HEAD + "  enforce_eager: {values: []}\n", "line 4: settings.enforce_eager.values"),
        (HEAD + "  enforce_eager: {value: [true]}\n", "line 4: unknown key 'value'"),
        (HEAD + "  enforce_eager: {values: legal}\n", "only for attention_backend"),
        (HEAD + "  cudagraph_mode:\n    values: [FULL]\n    when: {enforce_eager: [default]}\n", "does not stand above it"),
        (
            HEAD + "  enforce_eager: {values: [true]}\n  cudagraph_mode:\n    values: [FULL]\n    when: {enforce_eager: [false]}\n",
            "contradictory: enforce_eager is never one of [False]",
        ),
        (HEAD + "  {}\n", "line 3: no settings to search"),
        (HEAD + "  enforce_eager: {values: [true]}\n  enforce_eager: {values: [default]}\n", "line 5: key 'enforce_eager' stands"),
        (HEAD + "  enforce_eager: {values: &a [*a]}\n", "an alias refers to what contains it"),
        ("schema: advisor.space/9\nname: x\nsettings: {}\n", "line 1: schema"),
        ("schema: [\n", "line 2: not valid YAML"),
        ("- 1\n", "expected a mapping"),
        ("settings:\n  a: *x\n", "not valid YAML"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, part):
    with pytest.raises(InputError) as caught:
        load_space(written(tmp_path, text))
    assert part in caught.value.problem + "\n" + (caught.value.hint or "")
    assert caught.value.exit_code == 2


def test_all_mistakes_of_a_file_are_named_at_once(tmp_path):
    text = HEAD + "  enforce_eager: {value: [true], values: []}\nextra: 1\n"
    with pytest.raises(InputError) as caught:
        load_space(written(tmp_path, text))
    told = caught.value.problem + "\n" + caught.value.hint
    assert "'extra'" in told and "'value'" in told and "empty list" in told


def test_unknown_names_list_what_is_there(tmp_path):
    with pytest.raises(InputError) as caught:
        load_space("nothing")
    assert "default" in caught.value.hint
    with pytest.raises(InputError, match="does not exist"):
        load_space(str(tmp_path / "no.yaml"))


def test_mistakes_of_form_come_before_mistakes_of_meaning(tmp_path):
    """As docs/search-space.md says; all of one kind at once."""
    meaning = "  eager: {values: [true]}\n  graphs: {values: [true]}\n"
    with pytest.raises(InputError) as form:
        load_space(written(tmp_path, HEAD + meaning + "  enforce_eager: {values: []}\n"))
    assert "empty list" in form.value.problem and form.value.hint is None
    with pytest.raises(InputError) as caught:
        load_space(written(tmp_path, HEAD + meaning))
    assert "'eager'" in caught.value.problem and "'graphs'" in caught.value.hint
