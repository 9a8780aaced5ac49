"""Command lines: what is taken off around vLLM, and what each version's parser makes of the rest."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from advisor.engine.reading.command_line import read_command
from advisor.engine.reading.pasted import unwrap
from advisor.errors import InputError

NEW = (0, 26, 0)
RECORDED = json.loads((Path(__file__).parents[1] / "data" / "command_line" / "answers.json").read_text())
FILES = {name: yaml.safe_load(text) for name, text in RECORDED["files"].items()}
# Findings about words that vLLM takes and does something else with; every other error means that it refuses them.
TAKEN = {
    "json-lost-to-dotted-key",
    "mixed-dotted-spellings",
    "two-json-values",
    "yaml-map-lost-to-dotted-key",
    "yaml-false-dropped",
    "config-equals-not-read",
    "capture-size-set-twice",  # refused later, when the configuration is built
}


def read(text: str, version: tuple[int, ...] = NEW, files=None):
    return read_command(shlex.split(text), version, files)


def codes(text: str, version: tuple[int, ...] = NEW, files=None) -> list[str]:
    return [finding.code for finding in read(text, version, files).findings]


# ---------------------------------------------------------------- against the releases' own parsers


def recorded_cases():
    for version, answers in RECORDED["answers"].items():
        for words, answer in zip(RECORDED["words"], answers, strict=True):
            yield pytest.param(version, words, answer, id=f"{version} {' '.join(words[1:])}")


@pytest.mark.parametrize(("text", "words", "answer"), list(recorded_cases()))
def test_same_as_the_release_itself(text, words, answer):
    version = tuple(map(int, text.split(".")))
    found = read_command(["vllm", *words], version, FILES)
    said = [one for one in found.findings if one.severity == "error" and "ignores it without a word" not in one.message]
    errors = {finding.code for finding in said} - TAKEN
    late = errors & {"short-o-dotted-removed"} or bad_level(words, found.options.values)
    if answer is None:
        assert errors or late, "the release refuses these words"
    elif not late:
        assert not errors
        assert same_values(found, answer)


def bad_level(words: list[str], options: dict) -> bool:
    """Values that reading keeps and the resolution rules object to: a compilation mode or level that there is not."""
    config = options.get("--compilation-config", {})
    given = [config.get("mode"), config.get("level")] if isinstance(config, dict) else []
    return any(isinstance(value, str) for value in given) or "-Ofast" in words


def same_values(found, answer: dict) -> bool:
    assert found.model == answer.get("model_tag", answer.get("model"))
    for name, theirs in answer.items():
        if name in ("model", "model_tag"):
            continue
        mine = found.options.values["--" + name.replace("_", "-")]
        if isinstance(theirs, dict):
            derived = {
                "level": "mode",
                "mode": "level",
                "full_cuda_graph": "cudagraph_mode",
            }  # old keys also set new ones
            compared = set(theirs) - {derived.get(key) for key in mine}
            assert {key: plain(mine.get(key)) for key in compared} == {key: plain(theirs[key]) for key in compared}
        else:
            assert plain(mine) == plain(theirs)
    return True


def plain(value):
    """Numbers and names alike, whether they are text or not, and modes as their number."""
    modes = {"NONE": "0", "VLLM_COMPILE": "3"}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    text = str(value).upper().replace("8K", "8000").replace("1K", "1000")
    try:
        return float(text)
    except ValueError:
        return float(modes[text]) if text in modes else text


def test_recorded_releases_and_cases_are_many():
    assert len(RECORDED["answers"]) >= 10
    assert len(RECORDED["words"]) >= 70


# ---------------------------------------------------------------- what stands around vLLM


@pytest.mark.parametrize(
    ("text", "env", "entry"),
    [
        ("vllm serve M --max-num-seqs 4", {}, "serve"),
        ("VLLM_X=1 HF_HOME=/a vllm serve M --max-num-seqs 4", {"VLLM_X": "1", "HF_HOME": "/a"}, "serve"),
        ("sudo env VLLM_X=1 /opt/venv/bin/vllm serve M --max-num-seqs 4", {"VLLM_X": "1"}, "serve"),
        ("python3 -m vllm.entrypoints.cli.main serve M --max-num-seqs 4", {}, "serve"),
        ("python -u -m vllm.entrypoints.openai.api_server --model M --max-num-seqs 4", {}, "api_server"),
        ("python /src/vllm/entrypoints/openai/api_server.py --model M --max-num-seqs 4", {}, "api_server"),
        ("bash -lc 'export VLLM_X=1 && vllm serve M --max-num-seqs 4'", {"VLLM_X": "1"}, "serve"),
        ("uv run vllm serve M --max-num-seqs 4", {}, "serve"),
    ],
)
def test_surroundings_are_taken_off(text, env, entry):
    assert unwrap(shlex.split(text)).entry == entry
    found = read(text)
    assert (found.model, found.env, found.options.values["--max-num-seqs"]) == ("M", env, "4")


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve M \\\n  --max-num-seqs 4 \\\n  --enforce-eager\n",
        "  vllm serve M --max-num-seqs 4 --enforce-eager 2>&1 | tee log.txt",
        "export A=4; cd /tmp && vllm serve M --max-num-seqs $A --enforce-eager &",
        "vllm serve 'M' --max-num-seqs=4 --enforce-eager",
    ],
)
def test_a_whole_command_as_one_text(text):
    found = read_command([text], NEW)
    assert (found.model, found.options.values) == ("M", {"--max-num-seqs": "4", "--enforce-eager": True})


def test_variables_that_nothing_gives_a_value_are_said():
    found = read_command(["export A=M; vllm serve $A --seed ${SEED} --port $PORT"], NEW)
    assert found.model == "M"
    assert [finding.message.split()[0] for finding in found.findings if finding.code == "variable-not-expanded"] == [
        "${SEED}",
        "$PORT",
    ]


def test_json_keeps_its_quotes_in_one_text():
    found = read_command(["""vllm serve M -cc '{"cudagraph_mode": "FULL; x"}'"""], NEW)
    assert found.options.values == {"--compilation-config": {"cudagraph_mode": "FULL; x"}}


def test_lone_backslashes_of_continued_lines_are_no_words():
    assert read_command(["vllm", "serve", "M", "\\", "--enforce-eager"], NEW).options.values == {
        "--enforce-eager": True
    }


def test_docker_run():
    text = (
        "docker run --gpus all --rm -it -p 8000:8000 --ipc=host -v ~/.cache:/root/.cache -e VLLM_ATTENTION_BACKEND=FLASHINFER "
        "--env HF_TOKEN=x vllm/vllm-openai:v0.11.0 --model M --max-num-seqs 4"
    )
    pasted = unwrap(shlex.split(text))
    found = read(text, (0, 11, 0))
    assert pasted.version == "0.11.0"
    assert (found.model, found.options.values) == ("M", {"--max-num-seqs": "4"})
    assert found.env == {"VLLM_ATTENTION_BACKEND": "FLASHINFER", "HF_TOKEN": "x"}
    assert not found.findings


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("vllm/vllm-openai:v0.12.0-cu130", "0.12.0"),
        ("registry:5000/vllm/vllm-openai:0.13.0", "0.13.0"),
        ("vllm/vllm-openai:v0.11.0@sha256:abc", "0.11.0"),
        ("vllm/vllm-openai:nightly", None),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
        ("nvcr.io/nvidia/tritonserver:25.12-vllm-python-py3", None),
        ("vllm/vllm-openai:v20.25.1", "20.25.1"),
    ],
)
def test_version_of_an_image(image, version):
    assert unwrap(["docker", "run", image, "M"]).version == version


def test_a_date_as_tag_is_said():
    """NVIDIA's catalogue names its containers YY.MM-py3."""
    found = unwrap(["docker", "run", "nvcr.io/nvidia/vllm:25.09-py3", "vllm", "serve", "M"])
    assert [(one.severity, one.code) for one in found.findings] == [("info", "image-version-not-known")]
    assert "25.09 of the image nvcr.io/nvidia/vllm:25.09-py3 is a date" in found.findings[0].message
    assert unwrap(["docker", "run", "vllm/vllm-openai:v0.26.0", "M"]).findings == ()


def test_docker_with_another_entry_point():
    text = "docker run --entrypoint vllm vllm/vllm-openai:v0.9.2 serve M --max-num-seqs 4"
    assert read(text).options.values == {"--max-num-seqs": "4"}
    assert read("docker run img/vllm:v1 vllm serve M").model == "M"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["frobnicate", "M"], "'frobnicate' at word 1"),
        (["A=1", "sglang", "M"], "'sglang' at word 2"),
        (["vllm", "bench", "M"], "expected `serve` after `vllm` at word 2, found 'bench'"),
        (["python", "-m", "sglang.launch_server"], "'python' at word 1 runs 'sglang.launch_server'"),
        (["vllm serve M --chat-template 'open"], "no closing quotation in word 5"),
        (["docker", "run", "--rm"], "docker run without an image"),
        (["docker", "run", "nginx:1.2", "x"], "image 'nginx:1.2' at word 3"),
        (["bash", "start.sh"], "a shell without -c"),
        ([], "no vLLM command"),
    ],
)
def test_what_is_no_vllm_command_names_the_word(words, part):
    with pytest.raises(InputError) as caught:
        read_command(words, NEW)
    assert part in caught.value.problem


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("text", "version", "code", "fix"),
    [
        ("""vllm serve M -cc '{"mode":3}' -cc.cudagraph_mode=FULL""", NEW, "json-lost-to-dotted-key", '"mode": 3'),
        ("""vllm serve M -cc.cudagraph_mode=FULL -cc '{"mode":3}'""", NEW, "json-lost-to-dotted-key", '"mode": 3'),
        (
            "vllm serve M -cc.mode=3 --compilation-config.backend eager",
            NEW,
            "mixed-dotted-spellings",
            '"backend": "eager"',
        ),
        ("""vllm serve M -cc '{"mode":3}' -cc '{"backend":""}'""", NEW, "two-json-values", '"mode": 3'),
        (
            """vllm serve M -O3 --compilation-config '{"use_inductor":true}'""",
            (0, 11, 0),
            "json-lost-to-dotted-key",
            "level",
        ),
        ("vllm serve M --config=f.yaml", NEW, "config-equals-not-read", "--config f.yaml"),
        ("vllm serve M --enforce-eager=false", NEW, "boolean-with-value", "--no-enforce-eager"),
        ("vllm serve M --enforce-eager true", NEW, "boolean-with-value", "--enforce-eager"),
        ("vllm serve M --enable-prefix-caching False", NEW, "boolean-with-value", "--no-enable-prefix-caching"),
        ("vllm serve M --max-seq-len-to-capture 8192", NEW, "option-removed", "leave it out"),
        ("vllm serve M --cuda-graph-sizes 64", NEW, "option-renamed", "--max-cudagraph-capture-size"),
        ("vllm serve M --max-num-seq2 8", NEW, "option-unknown", "--max-num-seqs"),
        ("vllm serve M --attention-backend FLASHINFER", (0, 11, 0), "option-unknown", "VLLM_ATTENTION_BACKEND"),
        ("vllm serve M -cc.mode=3", (0, 11, 0), "option-unknown", "--compilation-config"),
        ("vllm serve M --cudagraph-mode FULL", NEW, "option-unknown", "-cc.cudagraph_mode=MODE"),
        ("vllm serve M --cudagraph-capture-sizes 1,2,4", NEW, "capture-sizes-comma-separated", "1 2 4"),
        (
            "vllm serve M --cudagraph-capture-sizes 1 2 -cc.cudagraph_capture_sizes=[1]",
            NEW,
            "capture-size-set-twice",
            "one",
        ),
        ("""vllm serve M -cc "'{}'" """, NEW, "quoted-json-literal", "without them: {}"),
        ("vllm serve M --compilation-config 3", NEW, "bare-compilation-level", "-O3"),
        ("vllm serve M --compilation-config O1", (0, 12, 0), "bare-compilation-level", "-O1"),
        ("vllm serve M -O.cudagraph_mode=FULL", (0, 13, 0), "short-o-dotted-removed", "-cc.cudagraph_mode=FULL"),
        ("vllm serve M -O.cudagraph_mode=FULL", (0, 12, 0), "short-o-dotted-deprecated", "-cc.cudagraph_mode=FULL"),
        ("vllm serve M -O.level=2", (0, 18, 1), "level-removed", "mode: 2"),
        ("vllm serve M -cc.level=2", (0, 16, 0), "level-deprecated", "mode: 2"),
        ("vllm serve M -cc.full_cuda_graph=true", NEW, "option-renamed", "cudagraph_mode"),
        ("vllm serve M -cc.nonsense=1", NEW, "option-unknown", "leave it out"),
        ("vllm serve M --cuda-graph-sizes 64", (0, 12, 0), "option-renamed", "--max-cudagraph-capture-size"),
        ("vllm serve M --no-disable-cascade-attn", (0, 32, 0), "cascade-removed", "leave it out"),
        ("vllm serve --model M", (0, 11, 0), "model-by-option", "vllm serve M"),
        ("VLLM_ATTENTON_BACKEND=X vllm serve M", NEW, "env-unknown", "leave it out"),
        ("VLLM_USE_V1=1 vllm serve M", NEW, "env-unknown", "leave it out"),
        ("vllm serve M --max-num-seqs", NEW, "value-missing", "--max-num-seqs VALUE"),
        ("vllm serve M --max-num 8", NEW, "option-ambiguous", "write the option out"),
        ("vllm serve M '--max-num-seqs 8'", NEW, "words-in-one-argument", "'--max-num-seqs', '8'"),
        ("vllm serve M N", NEW, "word-without-option", "leave it out"),
        ("vllm serve M --max-num-seqs 4k", NEW, "value-invalid", "--max-num-seqs with a whole number"),
        ("vllm serve M --dtype fp16", NEW, "value-invalid", "float16"),
        ("vllm serve M --kv-cache-dtype int8 --seed 1", NEW, "value-invalid", "fp8"),
        ("vllm serve M --gpu-memory-utilization 90%", NEW, "value-invalid", "a number"),
        ("vllm serve M --max-num-batched-tokens 8k", (0, 9, 0), "value-invalid", "a whole number"),
    ],
)
def test_findings(text, version, code, fix):
    found = [finding for finding in read(text, version).findings if finding.code == code]
    assert found, codes(text, version)
    assert fix in found[0].fix


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("vllm serve M -cc.mode=3 -cc.backend=eager", NEW),
        ("vllm serve M --compilation_config.mode 3", NEW),
        ("vllm serve M --tensor-parallel 2", NEW),
        ("vllm serve M --no-enforce-eager -tp 2 -O3", NEW),
        ("vllm serve M --compilation-config.full_cuda_graph true", (0, 10, 0)),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve M", (0, 11, 0)),
        ("vllm serve M --swap-space -1 --seed -1", (0, 11, 0)),
        ("vllm serve M --served-model-name a b --port 80", NEW),
        ("vllm serve M --gpu-memory-utilization=0.9 --max-model-len 8k", NEW),
        ("vllm serve --model M", NEW),
        ("""vllm serve M --speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'""", NEW),
    ],
)
def test_nothing_to_find(text, version):
    assert codes(text, version) == []


def test_findings_name_the_word():
    finding = read("A=1 vllm serve M --enforce-eager=false").findings[0]
    assert "'--enforce-eager=false' at word 5" in finding.message


def test_what_comes_after_a_mistake_is_still_read():
    found = read("vllm serve M --nonsense 1 2 --max-num-seqs 8")
    assert found.options.values == {"--max-num-seqs": "8"}


# ---------------------------------------------------------------- config file on the command line


@pytest.mark.parametrize(
    ("data", "version", "expected", "code"),
    [
        ({"max-num-seqs": 8}, NEW, {"--max-num-seqs": "8"}, None),
        ({"max_num_seqs": 8, "enforce-eager": True}, NEW, {"--max-num-seqs": "8", "--enforce-eager": True}, None),
        ({"enable-prefix-caching": False}, NEW, {}, "yaml-false-dropped"),
        ({"enable-prefix-caching": False}, (0, 32, 0), {}, "yaml-false-dropped"),
        ({"compilation-config": {"mode": 3}}, NEW, {"--compilation-config": {"mode": 3}}, None),
        ({"compilation-config": '{"mode": 3}'}, (0, 13, 0), {"--compilation-config": {"mode": 3}}, None),
        (
            {"compilation-config": {"mode": 3}},
            (0, 15, 1),
            {"--compilation-config": {"mode": 3}},
            "yaml-nested-map-not-supported",
        ),
        ({"cuda-graph-sizes": [1, 2]}, (0, 10, 2), {"--cuda-graph-sizes": [1, 2]}, None),
        ({"cuda-graph-sizes": [1, 2]}, (0, 10, 0), {}, "yaml-list-not-supported"),
    ],
)
def test_config_file(data, version, expected, code):
    found = read("vllm serve M --config f.yaml", version, {"f.yaml": data})
    assert found.options.values == expected
    assert [finding.code for finding in found.findings] == ([code] if code else [])
    assert set(found.origins.values()) <= {"config-file"}


def test_command_line_wins_over_config_file():
    found = read(
        "vllm serve M --max-num-seqs 4 --config f.yaml", NEW, {"f.yaml": {"max-num-seqs": 8, "seed": 1, "model": "N"}}
    )
    assert (found.model, found.options.values) == ("M", {"--max-num-seqs": "4", "--seed": "1"})
    assert found.origins == {"--max-num-seqs": "flag", "--seed": "config-file"}


def test_map_in_the_file_is_lost_to_a_dotted_key():
    found = read(
        "vllm serve M -cc.mode=0 --config f.yaml", NEW, {"f.yaml": {"compilation-config": {"cudagraph_mode": "FULL"}}}
    )
    assert found.options.values == {"--compilation-config": {"mode": 0}}
    assert [finding.code for finding in found.findings] == ["yaml-map-lost-to-dotted-key"]


def test_false_that_is_the_default_anyway_is_no_error():
    found = read("vllm serve M --config f.yaml", NEW, {"f.yaml": {"enforce-eager": False}})
    assert [(finding.severity, finding.code) for finding in found.findings] == [("info", "yaml-false-dropped")]


def test_false_reaches_the_server_module_itself():
    text = "python -m vllm.entrypoints.openai.api_server --model M --config f.yaml"
    found = read(text, (0, 32, 0), {"f.yaml": {"enable-prefix-caching": False}})
    assert found.options.values == {"--enable-prefix-caching": False}


def test_a_config_file_that_is_not_here_is_said():
    assert codes("vllm serve M --config f.yaml") == ["config-file-not-here"]
