"""Exported commands and files say what the profile says, and vLLM's own parser reads them so."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from advisor.errors import InputError
from advisor.export import EXPORTERS, export_profile, with_model
from advisor.serving_profile.args import format_line, format_lines, parse_line
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.schema import Profile, Serve

# Option sets as people and the search write them.
OPTION_SETS = {
    "compilation as JSON": [
        "--compilation-config",
        '{"cudagraph_mode":"FULL","mode":0,"cudagraph_capture_sizes":[1,2,4,8]}',
    ],
    "compilation dotted": [
        "-cc.cudagraph_mode=PIECEWISE",
        "-cc.cudagraph_capture_sizes=[1,2,4]",
        "-cc.pass_config.fuse_norm_quant=false",
    ],
    "capture sizes as words": ["--cudagraph-capture-sizes", "1", "2", "4", "--max-num-seqs=4"],
    "switches": ["--enforce-eager", "--no-enable-prefix-caching", "--disable-log-stats", "--no-async-scheduling"],
    "level and short names": ["-O3", "-tp", "1", "--dtype", "bfloat16"],
    "short names that the advisor does not know": ["-dcp", "1", "-asc", "1", "--max-num-seqs", "8"],
    "lists": [
        "--served-model-name",
        "a",
        "b c",
        "--middleware",
        "x.A",
        "--middleware",
        "x.B",
        "--allowed-origins",
        '["*"]',
    ],
    "backend": ["-ac.backend=TRITON_ATTN", "-ac.flash_attn_version=3"],
    "numbers": ["--gpu-memory-utilization", "0.90", "--max-model-len", "1k", "--seed", "0", "--cpu_offload_gb", "1e1"],
    "JSON elsewhere": [
        "--override-generation-config",
        '{"temperature": 0.0}',
        "--hf-overrides.rope_scaling.factor",
        "2.0",
    ],
    "text that YAML misreads": [
        "--served-model-name",
        "yes",
        "--chat-template",
        "{{ a: b }} # 'c' \"d\" $e",
        "--revision",
        "2026-01-01",
    ],
    "secret": ["--api-key", "sk-synthetic-1", "--max-num-seqs", "3"],
}


def profile_with(study, words: list[str]) -> Profile:
    command = study.command(*words)
    return build_profile(replace(study.keep_defaults(), serve_args=tuple(words), baseline_command=command))


@pytest.fixture(scope="session")
def profiles(study) -> dict[str, Profile]:
    return {name: profile_with(study, words) for name, words in OPTION_SETS.items()}


def shell_words(command: str, **env: str) -> list[str]:
    """The words that a real shell passes on, with these variables set."""
    done = subprocess.run(
        ["sh", "-c", f"printf '%s\\0' {command}"], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", OPTION_SETS)
def test_a_shell_gives_back_the_words_that_were_run(study, profiles, name):
    profile = profiles[name]
    words = OPTION_SETS[name]
    for command in (EXPORTERS["command"](profile), format_lines(profile.serve.line())):
        arguments = command.split("vllm serve ", 1)[1]
        assert shell_words(arguments, API_KEY="sk-synthetic-1") == ["Synthetic-8B", *words]


def test_nothing_in_a_profile_is_run_by_the_shell():
    line = parse_line("vllm serve m --x '$(touch /tmp/no)`id`' --y '\"; id; \"' --z '${KEY}$(id)\\'")
    command = format_line(line).split("vllm serve ", 1)[1]
    assert shell_words(command, KEY="k") == ["m", "--x", "$(touch /tmp/no)`id`", "--y", '"; id; "', "--z", "k$(id)\\"]


def test_variables_come_first_and_secrets_are_references(study, profile):
    command = EXPORTERS["command"](profile)
    assert command.startswith(
        'HF_TOKEN="${HF_TOKEN}" TOKENIZERS_PARALLELISM=false VLLM_LOGGING_LEVEL=INFO vllm serve Synthetic-8B'
    )
    for text in (export(profile) for export in EXPORTERS.values()):
        assert study.SECRET not in text and study.API_KEY not in text and "/data" not in text
    assert "\n" not in command


def test_yaml_leaves_secrets_to_the_command_line(profile):
    text = EXPORTERS["vllm-yaml"](profile)
    data = yaml.safe_load(text)
    assert "api-key" not in data and "${" not in json.dumps(data)
    assert 'vllm serve --config FILE.yaml --api-key "${API_KEY}"' in text.split("\nmodel:")[0]


def test_yaml_is_what_every_reader_reads(profile):
    """No map (read from 0.16 only) and no false (dropped up to 0.27)."""
    data = yaml.safe_load(EXPORTERS["vllm-yaml"](profile))
    assert data["no-enable-prefix-caching"] is True
    assert json.loads(data["compilation-config"]) == {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128, 256]}
    assert not any(value is False or value is None or isinstance(value, dict) for value in data.values())


def test_another_model(profile):
    moved = with_model(profile, "/srv/models/My Model")
    assert "vllm serve '/srv/models/My Model' --load-format" in EXPORTERS["command"](moved)
    assert yaml.safe_load(EXPORTERS["vllm-yaml"](moved))["model"] == "/srv/models/My Model"
    assert EXPORTERS["command"](profile) != EXPORTERS["command"](moved)


def test_targets_by_name(profile):
    assert export_profile(profile) == EXPORTERS["command"](profile) + "\n"
    assert "model: /srv/m\n" in export_profile(profile, "vllm-yaml", model="/srv/m")
    with pytest.raises(InputError, match="'docker'") as caught:
        export_profile(profile, "docker")
    assert "command, vllm-yaml" in caught.value.hint


def test_a_broken_command_is_the_same_command():
    line = parse_line("A=1 vllm serve m --x 1 --y 'a  b'")
    serve = Serve(args={"x": 1, "y": "a  b"}, env={"A": "1"}, command=format_lines(line))
    assert serve.command == "A=1 vllm serve m --x 1 --y 'a  b'"


@pytest.mark.engine
def test_vllm_reads_the_file_as_it_reads_the_command(engine_python, profiles, tmp_path):
    """`vllm serve --config FILE` and the exported command parse to equal settings, and not to the defaults."""
    pairs: list[list[str]] = [["serve", "Synthetic-8B"]]
    for number, profile in enumerate(profiles.values()):
        text = EXPORTERS["vllm-yaml"](profile)
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        beside = next(line for line in text.splitlines() if "--config FILE.yaml" in line).split(
            "--config FILE.yaml", 1
        )[1]
        pairs += [
            ["serve", "--config", str(path), *shlex.split(beside)],
            shlex.split(EXPORTERS["command"](profile).split("vllm ", 1)[1]),
        ]
    script = Path(__file__).with_name("parse_serve.py")
    done = subprocess.run(
        [engine_python, str(script)], input=json.dumps(pairs), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    default, *results = json.loads(done.stdout.splitlines()[-1])
    for number, name in enumerate(profiles):
        from_file, from_words = results[2 * number : 2 * number + 2]
        assert from_file == from_words, name
        assert from_words != default, f"{name}: the options changed nothing, so this proves nothing"
