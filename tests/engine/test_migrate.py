"""A serve command of one vLLM version written for another."""

import json
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from advisor.cli import app
from advisor.engine.options import ServeOptions, parse_options
from advisor.engine.reading.command_line import read_command
from advisor.engine.reading.option_tables import option_status, options_of
from advisor.engine.versions import RELEASES, version_text
from advisor.engine.writing.default_changes import CHANGES, changes_between
from advisor.engine.writing.migrate import migrate
from advisor.engine.writing.migrate_renames import MOVES
from advisor.engine.writing.spelling import has_one_compilation_argument, spell
from advisor.engine.writing.spelling_table import TABLE
from advisor.errors import InputError
from advisor.export.migrate_file import read_source, rewritten
from advisor.serving_profile.store import read_profile
from tests.engine.recorded_parser import objections, table, versions
from tests.engine.spelling_cases import mixtures

OPTIONS = {version: table(version) for version in versions()}
PROFILE = next((Path(__file__).parents[1] / "profile" / "golden").glob("*.yaml"))


def migrated(line: str, old, new, env=None):
    read = read_command(["vllm", "serve", "m", *line.split(" ")], old)
    return migrate(read.options, env or {}, old, new)


def words(migration) -> str:
    return " ".join(migration.spelling.argv())


# ---------------------------------------------------------------- every pair


def spelled_cases(release, count):
    for settings in mixtures(release, count):
        try:
            yield spell(settings, release)
        except InputError:
            continue


@pytest.mark.parametrize("old", RELEASES, ids=version_text)
def test_from_each_release_to_others_the_result_is_accepted_and_everything_is_accounted_for(old):
    position = RELEASES.index(old)
    targets = {RELEASES[0], RELEASES[3], RELEASES[6], RELEASES[11], RELEASES[-1], RELEASES[max(0, position - 1)]}
    for spelled in spelled_cases(old, 6):
        for new in targets:
            result = migrate(spelled.options, spelled.env, old, new)
            argv = result.spelling.argv()
            assert objections(argv, OPTIONS[version_text(new)]) == [], (spelled, new)
            assert has_one_compilation_argument(argv)
            said = argv or result.spelling.env or result.changed or result.lost
            assert said or not (spelled.argv() or spelled.env)


@pytest.mark.parametrize("release", RELEASES, ids=version_text)
def test_to_the_same_version_nothing_changes(release):
    for spelled in spelled_cases(release, 10):
        result = migrate(spelled.options, spelled.env, release, release)
        assert (result.changed, result.lost, result.defaults) == ((), (), ())
        assert result.spelling.env == spelled.env
        assert dict(result.spelling.options.values) == dict(spelled.options.values)


def test_there_and_back_again():
    """What both versions can say survives the round trip."""
    for spelled in spelled_cases((0, 33, 0), 20):
        there = migrate(spelled.options, spelled.env, (0, 33, 0), (0, 17, 1))
        back = migrate(there.spelling.options, there.spelling.env, (0, 17, 1), (0, 33, 0))
        if not there.lost:
            assert dict(back.spelling.options.values) == dict(spelled.options.values)


# ---------------------------------------------------------------- one thing at a time


@pytest.mark.parametrize(
    ("line", "old", "new", "expected"),
    [
        ("-O3", (0, 10, 2), (0, 33, 0), '--compilation-config {"mode":"VLLM_COMPILE"}'),
        ("-O3", (0, 12, 0), (0, 33, 0), "--optimization-level 3"),
        ("-O1", (0, 12, 0), (0, 11, 0), '--compilation-config {"level":3,"cudagraph_mode":"PIECEWISE"}'),
        ("-O0", (0, 33, 0), (0, 11, 0), "--enforce-eager"),
        ("--cuda-graph-sizes 64", (0, 11, 0), (0, 12, 0), '--compilation-config {"max_cudagraph_capture_size":64}'),
        ("--cuda-graph-sizes 64", (0, 11, 2), (0, 13, 0), '--compilation-config {"cudagraph_capture_sizes":[64]}'),
        ("--cuda-graph-sizes 1 8", (0, 9, 0), (0, 13, 0), '--compilation-config {"cudagraph_capture_sizes":[1,8]}'),
        ("--max-cudagraph-capture-size 64", (0, 33, 0), (0, 10, 0), "--cuda-graph-sizes 64"),
        ("-cc.cudagraph_mode=NONE", (0, 13, 0), (0, 10, 0), '--compilation-config {"use_cudagraph":false}'),
        ("--task embed", (0, 12, 0), (0, 13, 0), "--runner pooling --convert embed"),
        ("--task generate", (0, 9, 2), (0, 12, 0), "--task generate"),
        ("--disable-mm-preprocessor-cache", (0, 12, 0), (0, 13, 0), "--mm-processor-cache-gb 0"),
        ("--num-redundant-experts 2 --eplb-window-size 9", (0, 11, 2), (0, 12, 0),
         '--eplb-config {"num_redundant_experts":2,"window_size":9}'),
        ("--disable-log-requests", (0, 9, 2), (0, 17, 1), ""),
        ("--disable-cascade-attn", (0, 17, 1), (0, 33, 0), ""),
        ("--no-enable-prefix-caching -tp 2", (0, 9, 0), (0, 33, 0), "--no-enable-prefix-caching --tensor-parallel-size 2"),
        ("-O2 -cc.cudagraph_mode=FULL", (0, 12, 0), (0, 11, 0), '--compilation-config {"level":3,"cudagraph_mode":"FULL"}'),
    ],
)  # fmt: skip
def test_spellings_are_carried_over(line, old, new, expected):
    result = migrated(line, old, new)
    assert words(result) == expected
    assert not result.lost


@pytest.mark.parametrize(
    ("line", "old", "new", "reason"),
    [
        ("-cc.cudagraph_mode=FULL_DECODE_ONLY", (0, 13, 0), (0, 10, 0), "decode-only full graphs need 0.10.2 or newer"),
        ("--performance-mode interactivity", (0, 33, 0), (0, 13, 0), "need 0.17.1 or newer"),
        ("--swap-space 4", (0, 17, 1), (0, 18, 1), "does not swap"),
        ("--num-scheduler-steps 4", (0, 9, 0), (0, 11, 0), "V0 engine"),
        ("--moe-backend triton", (0, 33, 0), (0, 13, 0), "it needs 0.17.1 or newer"),
        ("--attention-backend XFORMERS", (0, 13, 0), (0, 33, 0), "no attention backend XFORMERS"),
        ("-cc.pass_config.enable_sp=true", (0, 31, 0), (0, 32, 0), "removed in 0.32.0"),
    ],
)
def test_what_has_no_equivalent_is_left_out_and_named(line, old, new, reason):
    result = migrated(line, old, new)
    assert words(result) == ""
    (lost,) = result.lost
    assert reason in lost.reason and lost.before


def test_other_keys_of_a_configuration_survive_a_lost_one():
    result = migrated(
        '--compilation-config {"pass_config":{"enable_sp":true},"custom_ops":["none"]}', (0, 31, 0), (0, 33, 0)
    )
    assert words(result) == '--compilation-config {"custom_ops":["none"]}'
    assert [lost.before for lost in result.lost] == ["--compilation-config pass_config={'enable_sp': True}"]


def test_what_works_alone_but_not_together_loses_one():
    result = migrated("-cc.mode=NONE -cc.cudagraph_mode=FULL", (0, 13, 0), (0, 12, 0))
    assert words(result) == '--compilation-config {"mode":"NONE"}'
    assert [(lost.before, "need 0.13.0" in lost.reason) for lost in result.lost] == [("cudagraph_mode FULL", True)]


def test_variables_become_options_and_back():
    env = {
        "VLLM_ATTENTION_BACKEND": "TRITON_ATTN_VLLM_V1",
        "VLLM_FLASH_ATTN_VERSION": "3",
        "VLLM_USE_V1": "1",
        "HF_HOME": "/x",
    }
    up = migrated("--max-num-seqs 8", (0, 10, 0), (0, 26, 0), env)
    assert words(up) == '--attention-backend TRITON_ATTN --attention-config {"flash_attn_version":3} --max-num-seqs 8'
    assert up.spelling.env == {"HF_HOME": "/x"}
    assert ("VLLM_USE_V1=1", "") in [(change.before, change.after) for change in up.changed]
    down = migrate(up.spelling.options, up.spelling.env, (0, 26, 0), (0, 10, 0))
    assert down.spelling.env == {name: value for name, value in env.items() if name != "VLLM_USE_V1"}


def test_a_variable_that_the_old_version_ignores_is_left_out():
    result = migrated("--max-num-seqs 8", (0, 26, 0), (0, 12, 0), {"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    assert result.spelling.env == {}
    assert result.notes == ("VLLM_ATTENTION_BACKEND=FLASHINFER is left out: this vLLM does not read it",)


def test_the_backends_variable_beats_the_key_and_clashes_with_the_flag_in_0_13():
    env = {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    result = migrated("-ac.backend=TRITON_ATTN", (0, 13, 0), (0, 26, 0), env)
    assert words(result) == "--attention-backend FLASHINFER" and "wins over it" in result.notes[0]
    with pytest.raises(InputError, match="refuses both together"):
        migrated("--attention-backend TRITON_ATTN", (0, 14, 1), (0, 26, 0), env)


def test_one_thing_said_twice_is_refused():
    with pytest.raises(InputError, match=r"--cudagraph-capture-sizes 1 2 and .* disagree"):
        migrated(
            '--cudagraph-capture-sizes 1 2 --compilation-config {"cudagraph_capture_sizes":[8]}', (0, 13, 0), (0, 26, 0)
        )


def test_an_empty_configuration_is_nothing():
    assert words(migrated("--compilation-config {} --max-num-seqs 8", (0, 13, 0), (0, 26, 0))) == "--max-num-seqs 8"


def test_a_removed_variable_is_named():
    result = migrated("--max-num-seqs 8", (0, 13, 0), (0, 33, 0), {"VLLM_USE_CUDNN_PREFILL": "1"})
    assert result.spelling.env == {} and "does not read it any more" in result.lost[0].reason


def test_every_move_is_of_an_option_that_a_release_had_and_another_has_not():
    for name in MOVES:
        states = {option_status(name, release).state for release in RELEASES}
        assert "exists" in states and states & {"removed", "renamed"}, name


# ---------------------------------------------------------------- defaults


def test_changed_defaults_are_told_unless_the_person_fixes_them():
    plain = {(change.setting, change.since) for change in migrated("--max-num-seqs 8", (0, 17, 1), (0, 20, 2)).defaults}
    assert {("cascade attention", (0, 18, 1)), ("--gpu-memory-utilization", (0, 20, 2))} <= plain
    fixed = migrated("--disable-cascade-attn --gpu-memory-utilization 0.9", (0, 17, 1), (0, 20, 2)).defaults
    assert not {"cascade attention", "--gpu-memory-utilization"} & {change.setting for change in fixed}
    assert not any(
        change.setting.startswith("CUDA-graph mode") for change in migrated("-tp 1", (0, 11, 0), (0, 33, 0)).defaults
    )


def kept(old, new):
    return {change.setting: change.keep for change in migrated("--max-num-seqs 8", old, new).defaults}


def test_what_keeps_a_default_is_in_the_words_of_the_target():
    new = kept((0, 9, 2), (0, 33, 0))
    assert new["CUDA-graph mode"] == """--compilation-config '{"cudagraph_mode":"PIECEWISE"}'"""
    assert new["asynchronous scheduling"] == "--no-async-scheduling"
    assert kept((0, 9, 2), (0, 10, 0))["capture sizes"] == "--cuda-graph-sizes 512"
    assert new["--prefix-caching-hash-algo"] == ""  # its old value is gone
    assert set(kept((0, 33, 0), (0, 9, 2)).values()) == {""}


@pytest.mark.parametrize("new", RELEASES[1:], ids=version_text)
def test_what_keeps_a_default_is_accepted_by_the_target(new):
    for words in kept((0, 9, 0), new).values():
        argv = [word for word in shlex.split(words) if not word.startswith("VLLM_")]
        assert objections(argv, OPTIONS[version_text(new)]) == [], words


def test_a_removed_setting_has_one_line():
    defaults = migrated("--max-num-seqs 8", (0, 17, 1), (0, 33, 0)).defaults
    assert [change.after for change in defaults if "cascade" in change.setting] == ["removed; the option has no effect"]
    assert kept((0, 17, 1), (0, 31, 0))["cascade attention"] == "--no-disable-cascade-attn"


def test_the_seed_is_the_same_on_v1():
    """0.10.2/config/__init__.py 551 sets 0 where V1 runs and none is given; 0.11.0 writes 0 as the default."""
    assert "--seed" not in kept((0, 9, 0), (0, 33, 0))


def test_changes_are_between_the_versions_in_either_direction():
    up = changes_between((0, 10, 2), (0, 13, 0), ())
    assert up and all((0, 10, 2) < change.since <= (0, 13, 0) for change in up)
    assert changes_between((0, 13, 0), (0, 10, 2), ()) == up
    assert changes_between((0, 13, 0), (0, 13, 0), ()) == []


def test_the_table_of_changes_is_in_order_and_its_names_exist():
    assert [change.since for change in CHANGES] == sorted(change.since for change in CHANGES)
    assert {change.since for change in CHANGES} <= set(RELEASES)
    for name in {name for change in CHANGES for name in change.pinned_by}:
        assert name in TABLE or name.startswith("VLLM_") or option_status(name, RELEASES[-1]).exists, name


# ---------------------------------------------------------------- files and the command


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["migrate", *map(str, arguments)])
    if isinstance(result.exception, InputError):
        return 2, f"{result.exception.problem}\n{result.exception.hint}"
    return result.exit_code, result.output


def test_a_command_in_a_text_file(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text(
        "# ours\nVLLM_ATTENTION_BACKEND=FLASHINFER vllm serve org/m \\\n  --cuda-graph-sizes 8 \\\n  -tp 2\n"
    )
    code, text = run(path, "--from-version", "0.10.2", "--to-version", "0.26.0")
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert code == 0 and text.splitlines()[: len(comments)] == comments
    assert text.splitlines()[len(comments) :] == [
        "vllm serve org/m \\",
        "  --attention-backend FLASHINFER \\",
        """  --compilation-config '{"max_cudagraph_capture_size":8}' \\""",
        "  --tensor-parallel-size 2",
    ]
    assert "# changed: VLLM_ATTENTION_BACKEND=FLASHINFER -> --attention-backend FLASHINFER" in comments


def test_shell_variables_stay_with_the_shell(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text("M=org/m\nX=1 vllm serve $M --api-key \"$KEY\" --port $PORT --max-num-seqs 8 \"$@\" > x.log\n")
    code, text = run(path, "--from-version", "0.26.0", "--to-version", "0.27.1")
    assert code == 0 and "refuses" not in text
    assert "# note: variable-not-expanded: $KEY at word 6: shell variable, not expanded" in text
    assert "# note: shell-words-left-out: '> x.log' belongs to the shell and is left out" in text
    assert text.splitlines()[-1] == 'X=1 vllm serve org/m --api-key "$KEY" --port $PORT --max-num-seqs 8 "$@"'


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("$TP", "$(nvidia-smi -L | wc -l)"),
        ('"$TP"', '"$(nvidia-smi -L | wc -l)"'),
        ("${TP:-2}", "$(nvidia-smi -L | wc -l)"),
    ],
)
def test_commands_in_variables_stay_commands(tmp_path, words, written):
    path = tmp_path / "serve.sh"
    path.write_text(f"TP=$(nvidia-smi -L | wc -l)\nvllm serve m -tp {words}\n")
    code, text = run(path, "--from-version", "0.26.0", "--to-version", "0.27.1")
    assert code == 0 and text.splitlines()[-1] == f"vllm serve m --tensor-parallel-size {written}"


def test_a_script_is_followed(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text(
        '#!/bin/bash\nPORT=${PORT:-8000}\nexport HF_HOME=/data/hf\nARGS="--max-num-seqs 64 --swap-space 4"\n'
        'vllm serve "$MODEL" $ARGS --port $PORT\n'
    )
    code, text = run(path, "--from-version", "0.10.2", "--to-version", "0.26.0")
    assert "# note: variable-default-taken: PORT is not set in the text: ${PORT:-8000} counts as its default '8000'" in text
    assert code == 1 and "NO EQUIVALENT, left out: --swap-space 4" in text and "NOT READ" not in text
    assert text.splitlines()[-1] == 'HF_HOME=/data/hf vllm serve "$MODEL" --max-num-seqs 64 --port 8000'


def test_an_option_that_must_be_read_cannot_keep_a_variable(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text("""vllm serve m --cuda-graph-sizes $SIZES --compilation-config "{\\"level\\": $LEVEL}" -ac.backend=$B\n""")
    code, text = run(path, "--from-version", "0.10.2", "--to-version", "0.26.0")
    assert code == 1 and "# NOT READ, left out: variable-not-expanded: --cuda-graph-sizes $SIZES" in text
    assert "--compilation-config is kept as it is" in text
    assert text.splitlines()[-1].endswith("""--compilation-config "{\\"level\\": $LEVEL}\"""")


@pytest.mark.parametrize("old", RELEASES[::5], ids=version_text)
def test_every_option_keeps_a_variable_or_says_why_not(old):
    for name in sorted(options_of(old)):
        status = option_status(name, old)
        if status.kind == "switch" or status.option != name:
            continue
        found = read_command(["sh", "-c", f"vllm serve m {name} $X"], old)
        value = found.unknown.get(name)
        assert value in ("$X", ["$X"]) or name in ("--model", "--config"), name
        if name in ("--cuda-graph-sizes", "--model", "--config"):
            continue
        for new in (RELEASES[0], RELEASES[-1]):
            result = migrate(ServeOptions({name: value}), {}, old, new)
            assert "$X" in words(result) or result.lost or result.changed, name


def test_what_the_old_version_refuses_is_named(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve m --cuda-graph-sizes 8 --max-num-seqs 8\n")
    code, text = run(path, "--from-version", "0.26.0", "--to-version", "0.27.1")
    assert code == 1 and "# NOT READ, left out: option-renamed: --cuda-graph-sizes at word 4" in text
    assert text.splitlines()[-1] == "vllm serve m --max-num-seqs 8"


def test_json_and_the_exit_code_for_losses(tmp_path):
    path = tmp_path / "serve.txt"
    path.write_text("vllm serve m --performance-mode interactivity --max-num-seqs 8\n")
    code, text = run(path, "--from-version", "0.33.0", "--to-version", "0.13.0", "--json")
    found = json.loads(text)
    assert code == 1
    assert found["argv"] == ["vllm", "serve", "m", "--max-num-seqs", "8"]
    assert found["no_equivalent"][0]["before"] == "--performance-mode interactivity"
    assert found["file"] == "vllm serve m --max-num-seqs 8\n"
    assert {"setting", "since", "before", "after", "keep"} == set(found["default_changes"][0])


def test_a_configuration_file(tmp_path):
    path = tmp_path / "vllm.yaml"
    path.write_text(
        "model: org/m\ncompilation-config: '{\"level\": 3}'\nno-enable-prefix-caching: true\nmax-num-seqs: 8\n"
    )
    code, text = run(path, "--from-version", "0.11.0", "--to-version", "0.16.0")
    assert code == 0
    assert yaml.safe_load(text) == {
        "model": "org/m",
        "compilation-config": {"mode": "VLLM_COMPILE"},
        "no-enable-prefix-caching": True,
        "max-num-seqs": 8,
    }


def test_a_configuration_file_cannot_hold_variables(tmp_path):
    path = tmp_path / "vllm.yaml"
    path.write_text("model: m\nattention-backend: FLASHINFER\n")
    code, text = run(path, "--from-version", "0.13.0", "--to-version", "0.12.0")
    assert code == 0 and "# to set in the environment: VLLM_ATTENTION_BACKEND=FLASHINFER" in text.splitlines()


def test_a_profile_knows_its_version_and_stays_a_profile(tmp_path):
    code, text = run(PROFILE, "--to-version", "0.12.0")
    path = tmp_path / "new.yaml"
    path.write_text(text)
    before, after = read_profile(PROFILE), read_profile(path)
    assert f"# vLLM {before.software.vllm} -> 0.12.0" in text and code in (0, 1)
    assert after.measured == before.measured and after.software == before.software
    assert objections(list(after.serve.line().words), OPTIONS["0.12.0"]) == []


def test_without_from_version_the_newest_release_that_accepts_it_is_taken_and_said(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve m --cuda-graph-sizes 8\n")
    source = read_source(path, None)
    assert source.version == (0, 12, 0) and source.guessed
    assert "read as 0.12.0, the newest release that accepts it" in source.notes[0]
    assert "changed defaults are not listed without --from-version" in run(path, "--to-version", "0.26.0")[1]
    text = rewritten(source, migrate(source.options, source.env, source.version, (0, 26, 0)))
    assert text == """vllm serve m --compilation-config '{"cudagraph_capture_sizes":[8]}'\n"""


MANIFEST = """
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: server
    image: vllm/vllm-openai:v0.13.0
    env: [{name: SEQS, value: "64"}, {name: VLLM_ATTENTION_BACKEND, value: FLASHINFER}, {name: K, valueFrom: {}}]
    %s
"""


def migrated_part(tmp_path, lines):
    path = tmp_path / "pod.yaml"
    path.write_text(f"kind: Service\napiVersion: v1\n---{MANIFEST % lines}")
    code, text = run(path, "--to-version", "0.26.0")
    assert code == 0 and "# note: take out of env: VLLM_ATTENTION_BACKEND" in text.splitlines()
    assert "# note: image vllm/vllm-openai:v0.13.0: take one of vLLM 0.26.0" in text.splitlines()
    return yaml.safe_load(text)


def test_args_of_a_manifest(tmp_path):
    part = migrated_part(tmp_path, 'args: [m, --max-num-seqs, $(SEQS), --served-model-name, a b, --api-key, "$(K)"]')
    assert part == {
        "name": "server",
        "args": ["--model", "m", "--attention-backend", "FLASHINFER", "--max-num-seqs", "64", "--served-model-name", "a b",
                 "--api-key", "$(K)"],
    }  # fmt: skip
    read = read_command(["docker", "run", "vllm/vllm-openai:v0.26.0", *part["args"]], (0, 26, 0))
    assert (read.model, [one for one in read.findings if one.severity == "error"]) == ("m", [])


def test_what_is_mended_in_a_manifest_is_no_loss(tmp_path):
    part = migrated_part(tmp_path, """args: [m, --max-num-seqs, $SEQS, "--compilation-config='{\\"mode\\": 3}'"]""")
    assert part["args"][2:] == [
        "--attention-backend", "FLASHINFER", "--max-num-seqs", "64", "--compilation-config", '{"mode":"VLLM_COMPILE"}',
    ]  # fmt: skip


def test_a_shell_of_a_manifest_stays_one(tmp_path):
    part = migrated_part(tmp_path, "command: [/bin/sh, -c, 'set -e; A=1; vllm serve m --seed $A --port $PORT']")
    assert part["command"] == ["/bin/sh", "-c"]
    assert part["args"] == ["exec vllm serve m --attention-backend FLASHINFER --seed 1 --port $PORT"]


def test_a_command_of_a_manifest(tmp_path):
    part = migrated_part(tmp_path, "command: [env, 'X=1', vllm, serve, m]")
    assert part["command"] == ["vllm", "serve"] and part["args"] == ["m", "--attention-backend", "FLASHINFER"]
    assert part["env"] == [{"name": "X", "value": "1"}]


@pytest.mark.parametrize(
    ("name", "text", "arguments", "problem"),
    [
        ("a.sh", "ls -l\n", ["--to-version", "0.26.0"], "ls"),
        ("a.sh", "vllm serve m --x 'open\n", ["--to-version", "0.26.0"], ""),
        ("a.sh", "vllm serve m\n", ["--to-version", "0.8.0"], "too old"),
        ("a.sh", "vllm serve m\n", ["--to-version", "new"], "is not a vLLM version"),
        ("a.yaml", "- a\n", ["--to-version", "0.26.0"], "expected options of `vllm serve`, found list"),
        ("a.yaml", "apiVersion: v1\nkind: Pod\n", ["--to-version", "0.26.0"], "no container of the manifest runs vLLM"),
        ("a.yaml", "a: [\n", ["--to-version", "0.26.0"], "not valid YAML"),
        ("missing.sh", None, ["--to-version", "0.26.0"], "does not exist"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, name, text, arguments, problem):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    code, output = run(path, *arguments)
    assert code == 2 and problem in output


def test_options_that_no_release_knows_are_carried_over():
    result = migrate(parse_options(["--of-a-plug-in", "1"]), {}, (0, 13, 0), (0, 33, 0))
    assert words(result) == "--of-a-plug-in 1" and not result.changed
