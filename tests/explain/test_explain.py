"""`advisor explain`: the dictionary, the text for people, exit codes, and the time it takes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.engine.explain import RESOLVED, Gpu, explain, has_errors
from advisor.engine.reading.command_line import read_command
from advisor.engine.reading.option_tables import option_status
from advisor.engine.versions import RELEASES
from advisor.errors import InputError
from advisor.inspection.gpu_names import KNOWN
from advisor.inspection.gpu_specs import spec_of
from advisor.inspection.model import facts_from_config
from advisor.inspection.serve_command import _OWN, Question, installed_version
from advisor.inspection.serve_command import answer as ask
from advisor.report.explain import explain_lines
from tests import pace

ROOT = Path(__file__).parents[2]
H200 = Gpu("H200", (9, 0), 140.4)
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def answer(text: str, version: tuple[int, ...] = (0, 26, 0), **more):
    return explain(read_command(shlex.split(text), version), version, more.pop("gpu", H200), **more)


def run(*words: str, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "advisor", "explain", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=more.get("cwd", ROOT), env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


# ---------------------------------------------------------------- the dictionary


def test_default_on_a_large_gpu():
    found = answer("vllm serve M")
    assert (found["vllm_version"], found["source"], found["model"], found["requested"]) == ("0.26.0", "rules", "M", {})
    assert found["resolved"]["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert found["resolved"]["max_num_seqs"] == 1024
    assert found["coverage"] == {
        "full_decode_max": 512,
        "operating_point": 1024,
        "uncovered_decode_batches": [[513, 1024]],
    }
    assert [finding["code"] for finding in found["findings"]] == ["operating-point-not-covered"]
    assert not has_errors(found)
    assert set(found["resolved"]) == set(found["origins"]) == set(RESOLVED)


def test_the_fix_for_coverage_covers():
    found = answer("vllm serve M --max-num-seqs 600")
    fix = next(finding["fix"] for finding in found["findings"] if finding["code"] == "operating-point-not-covered")
    flag = fix.split(",")[0]
    assert answer(f"vllm serve M --max-num-seqs 600 {flag}")["coverage"]["uncovered_decode_batches"] == []


@pytest.mark.parametrize(
    ("words", "version", "fix"),
    [
        ("--max-num-seqs 64 --cudagraph-capture-sizes 1 2 4 8", (0, 26, 0),
         "--cudagraph-capture-sizes 1 2 4 8 16 24 32 40 48 56 64"),
        ("--max-num-seqs 1024", (0, 26, 0), "--max-cudagraph-capture-size 1024"),
        ("--max-num-seqs 1024", (0, 33, 0), "--max-cudagraph-capture-size 1024"),
        ("--max-num-seqs 1024", (0, 11, 0), "--cuda-graph-sizes 1024"),
        ("--max-num-seqs 600", (0, 26, 0), "--max-num-seqs 608 --max-cudagraph-capture-size 608"),
        ("--max-num-seqs 12", (0, 29, 0), "--cudagraph-capture-sizes 1 2 4 8 12 16 24"),
        ("--max-num-seqs 20 --cuda-graph-sizes 1 2 4", (0, 11, 0), "--cuda-graph-sizes 1 2 4 8 16 20"),
    ],
)  # fmt: skip
def test_the_fix_for_coverage_leaves_no_gap(words, version, fix):
    """A batch one above the old list must not be padded to the largest graph."""
    found = answer(f"vllm serve M {words}", version)
    told = next(finding for finding in found["findings"] if finding["code"] == "operating-point-not-covered")
    assert (told["severity"], told["fix"].split(", or")[0]) == ("warning", fix)
    assert "advisor buckets" in told["fix"]
    kept = words if "--cuda" not in words else words[: words.index(" --cuda")]
    again = answer(f"vllm serve M {kept} {fix}", version)
    sizes = again["resolved"]["cudagraph_capture_sizes"]
    assert again["coverage"]["uncovered_decode_batches"] == []
    assert max(high - low for low, high in zip([0, *sizes], sizes, strict=False)) <= 16


def test_the_default_is_told_in_one_short_line():
    found = answer("vllm serve M")["findings"]
    assert [(finding["severity"], finding["code"]) for finding in found] == [("info", "operating-point-not-covered")]
    assert found[0]["fix"] == "only for more than 512 requests at once: --max-cudagraph-capture-size 1024, or --max-num-seqs 512"
    assert len(found[0]["message"]) < 100


def test_requested_uses_the_names_of_settings():
    text = "VLLM_LOGGING_LEVEL=DEBUG vllm serve M --max-num-seqs 8 -cc.cudagraph_mode=FULL -cc.backend=eager --seed 1"
    assert answer(text)["requested"] == {
        "cudagraph_mode": "FULL",
        "max_num_seqs": 8,
        "--compilation-config": {"backend": "eager"},
        "--seed": "1",
        "VLLM_LOGGING_LEVEL": "DEBUG",
    }


def test_origins():
    read = read_command(["vllm", "serve", "M", "--config", "f.yaml"], (0, 26, 0), {"f.yaml": {"max-num-seqs": 8}})
    assert explain(read, (0, 26, 0), H200)["origins"]["max_num_seqs"] == "config-file"
    found = answer("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve M --max-num-seqs 8", (0, 11, 0))
    assert (found["origins"]["attention_backend"], found["origins"]["max_num_seqs"]) == ("env", "flag")


@pytest.mark.parametrize(
    ("text", "version", "severity", "code"),
    [
        ("VLLM_ATTENTION_BACKEND=TRITON_ATTN vllm serve M", (0, 26, 0), "error", "env-backend-ignored"),
        (
            "VLLM_ATTENTION_BACKEND=TRITON_ATTN vllm serve M --attention-backend TRITON_ATTN",
            (0, 13, 0),
            "error",
            "env-backend-clash",
        ),
        (
            "VLLM_ATTENTION_BACKEND=TRITON_ATTN vllm serve M -ac.backend=FLASHINFER",
            (0, 14, 1),
            "warning",
            "env-backend-beats-config",
        ),
        ("vllm serve M --enforce-eager -cc.cudagraph_mode=FULL", (0, 26, 0), "warning", "eager-with-graph-settings"),
        (
            "vllm serve M --attention-backend FLASHINFER -cc.cudagraph_mode=FULL",
            (0, 26, 0),
            "warning",
            "graph-mode-rewritten",
        ),
        ("vllm serve M --max-cudagraph-capture-size 257", (0, 26, 0), "warning", "capture-maximum-truncated"),
        ("vllm serve M --attention-backend FLASHMLA", (0, 26, 0), "error", "backend-invalid"),
        ("vllm serve M --attention-backend NOPE", (0, 26, 0), "error", "backend-unknown"),
        ("vllm serve M -O3", (0, 26, 0), "info", "optimization-o3-equals-o2"),
        (
            "vllm serve M --max-num-seqs 64 --max-num-batched-tokens 32",
            (0, 26, 0),
            "error",
            "batched-tokens-below-seqs",
        ),
    ],
)
def test_findings_of_the_rules_are_told(text, version, severity, code):
    found = [finding for finding in answer(text, version)["findings"] if finding["code"] == code]
    assert found, answer(text, version)["findings"]
    assert found[0]["severity"] == severity
    assert found[0]["message"] and found[0]["fix"]


MLA = {**LLAMA, "architectures": ["DeepseekV2ForCausalLM"], "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
       "v_head_dim": 128}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "gpu", "version", "names"),
    [
        (None, H200, (0, 26, 0), "FLASHINFER, FLASH_ATTN, FLEX_ATTENTION, TRITON_ATTN"),
        (MLA, H200, (0, 26, 0), "FLASHMLA, FLASH_ATTN_MLA, TRITON_MLA"),
        (LLAMA, Gpu("T4", (7, 5), 16.0), (0, 26, 0), "FLEX_ATTENTION, TRITON_ATTN"),
        (LLAMA, H200, (0, 10, 0),
         "FLASHINFER, FLASHINFER_VLLM_V1, FLASH_ATTN, FLASH_ATTN_VLLM_V1, FLEX_ATTENTION, TRITON_ATTN_VLLM_V1"),
    ],
)  # fmt: skip
def test_backends_that_are_offered_fit(config, gpu, version, names):
    """0.26.0: FlashInfer's MLA kernels are for 10.x, FlashInfer itself for 8.0 and more (supports_compute_capability)."""
    model = facts_from_config("M", config) if config else None
    ask = "VLLM_ATTENTION_BACKEND=NOPE vllm serve M" if version < (0, 13) else "vllm serve M --attention-backend NOPE"
    found = answer(ask, version, gpu=gpu, model=model)["findings"]
    fix = next(finding["fix"] for finding in found if finding["code"] == "backend-unknown")
    assert fix == f"one of {names}, or leave it to vLLM"


def test_eager_with_graph_settings_names_both_sides():
    found = answer("vllm serve M --enforce-eager -cc.cudagraph_mode=FULL", (0, 26, 0))["findings"]
    fix = next(finding["fix"] for finding in found if finding["code"] == "eager-with-graph-settings")
    assert fix == "leave --enforce-eager out to have graphs, or leave cudagraph_mode out"


def test_findings_are_ordered_and_told_once():
    found = answer("vllm serve M -O3 --enforce-eager=false --enforce-eager=false --max-num-seqs 600")
    severities = [finding["severity"] for finding in found["findings"]]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert len(found["findings"]) == len({(finding["code"], finding["message"]) for finding in found["findings"]})


def test_what_the_installed_vllm_says_wins_except_what_it_does_not_know_yet():
    theirs = {"ok": True, "resolved": {"max_num_seqs": 256, "attention_backend": None, "cudagraph_mode": "FULL"}}
    found = answer("vllm serve M --attention-backend FLASHINFER -cc.cudagraph_mode=FULL", installed=theirs)
    assert (found["source"], found["resolved"]["max_num_seqs"]) == ("installed", 256)
    assert found["resolved"]["attention_backend"] == "FLASHINFER"
    assert (
        found["resolved"]["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    )  # FULL in its configuration, before the backend is asked


def test_a_refusal_of_the_installed_vllm_is_an_error():
    found = answer("vllm serve M", installed={"ok": False, "error": "no such thing"})
    assert [finding["code"] for finding in found["findings"] if finding["severity"] == "error"] == [
        "refused-by-installed"
    ]


# ---------------------------------------------------------------- GPUs


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.slug)
def test_every_known_gpu_has_its_figures(known):
    spec = spec_of(known.slug)
    assert spec.memory_gib and (spec.platform == "rocm" or spec.compute_capability)


def test_forms_and_memory_sizes():
    assert spec_of("A100 40GB").memory_gib == 40
    assert spec_of("H100 NVL").compute_capability == (9, 0)
    assert spec_of("cpu").platform == "cpu"


# ---------------------------------------------------------------- text


def test_text_for_people():
    text = "\n".join(explain_lines(answer("vllm serve M --attention-backend FLASHINFER -cc.cudagraph_mode=FULL")))
    assert text.startswith("M on vLLM 0.26.0 (by rules, not asked), H200\n")
    assert "CUDA graph mode         FULL_AND_PIECEWISE  (rewrite:backend-support, asked for FULL)" in text
    assert "capture sizes           1 2 4 8 16 .. 496 512 (51 sizes)  (default)" in text
    assert "coverage: decode batches up to 512 tokens run in FULL graphs; the largest possible has 1024" in text
    assert "    fix: " in text


def test_text_without_findings():
    lines = explain_lines(answer("vllm serve M --max-num-seqs 256"))
    assert "coverage: every decode batch, up to 256 tokens, runs in a FULL graph" in lines
    assert "no findings" in lines


# ---------------------------------------------------------------- the command


def test_exit_codes_and_streams(tmp_path):
    good = run("--vllm-version", "0.26.0", "--gpu", "H200", "--", "vllm", "serve", "M")
    assert (good.returncode, good.stderr) == (0, "")
    bad = run("--vllm-version", "0.26.0", "--json", "vllm", "serve", "M", "--enforce-eager=true")
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["findings"][0]["code"] == "boolean-with-value"
    for words, part in (
        (("--vllm-version", "0.8.5", "--", "vllm", "serve", "M"), "0.8.5 is too old"),
        (("--vllm-version", "0.26.0", "--", "frobnicate"), "'frobnicate' at word 1"),
        (("--vllm-version", "0.26.0"), "nothing to explain"),
        (("--vllm-version", "0.26.0", "--gpu", "H999", "--", "vllm", "serve", "M"), "unknown GPU"),
        (("--vllm-version", "0.26.0", "--config", str(tmp_path / "none.yaml")), "cannot be read"),
        (("--nonsense-option",), "is not the start"),
    ):
        wrong = run(*words)
        assert (wrong.returncode, wrong.stdout) == (2, ""), words
        assert part in wrong.stderr


def test_a_newer_version_is_said():
    found = json.loads(run("--vllm-version", "0.99.0", "--json", "--", "vllm", "serve", "M").stdout)
    assert found["vllm_version"] == "0.33.0"
    assert [finding["code"] for finding in found["findings"] if "0.99.0" in finding["message"]] == ["version-not-read"]


def test_files(tmp_path):
    (tmp_path / "vllm.yaml").write_text("model: M\nmax-num-seqs: 8\nenable-prefix-caching: false\n")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "pod.yaml").write_text(
        "kind: Pod\nspec:\n  containers:\n  - {name: a, image: 'vllm/vllm-openai:v0.11.0', args: [M, --max-num-seqs, '8']}\n"
    )
    config = run(
        "--vllm-version", "0.26.0", "--config", "vllm.yaml", "--model-config", "config.json", "--json", cwd=tmp_path
    )
    found = json.loads(config.stdout)
    assert config.returncode == 1
    assert (found["model"], found["origins"]["max_num_seqs"]) == ("M", "config-file")
    assert not any("model's config" in sentence for sentence in found["assumed"])
    named = run("--vllm-version", "0.26.0", "--json", "--", "vllm", "serve", "M", "--config", "vllm.yaml", cwd=tmp_path)
    assert json.loads(named.stdout)["requested"]["max_num_seqs"] == 8
    pod = json.loads(run("--k8s", "pod.yaml", "--json", cwd=tmp_path).stdout)
    assert (pod["vllm_version"], pod["resolved"]["max_num_seqs"]) == ("0.11.0", 8)


def told(*command: str):
    return ask(Question(command, vllm_version="0.26.0", gpu="H200"))


def test_a_script_is_read_as_migrate_reads_it(tmp_path):
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\nN=8\nray start --head && numactl -N 0 vllm serve m --max-num-seqs $N --port $PORT | tee x\n")
    found = told(str(script))
    assert (found["model"], found["resolved"]["max_num_seqs"]) == ("m", 8)
    assert found["requested"] == {"max_num_seqs": 8, "--port": "$PORT"}
    codes = [finding["code"] for finding in found["findings"]]
    assert codes == [
        "variable-not-expanded", "commands-passed-over", "shell-words-left-out", "words-passed-over",
    ]  # fmt: skip
    script.write_text("vllm")
    with pytest.raises(InputError, match="expected `serve` after `vllm`"):
        told(str(script))
    with pytest.raises(InputError, match=r"there is no file 'gone\.sh'"):
        told("gone.sh")


def test_a_value_that_is_not_known_counts_as_not_given():
    found = told("vllm serve m --max-num-seqs $N --cuda-graph-sizes $SIZES -cc.cudagraph_mode=$MODE")
    assert found["resolved"]["max_num_seqs"] == told("vllm serve m")["resolved"]["max_num_seqs"]
    assert found["requested"]["--max-num-seqs"] == "$N"
    # --cuda-graph-sizes is gone in 0.26, whatever it is given
    assert [one["code"] for one in found["findings"] if one["severity"] == "error"] == ["option-renamed"]


def test_a_profile_is_no_config_file():
    path = next((ROOT / "profiles").glob("*/*.yaml"))
    for question in (Question(config=path), Question((str(path),))):
        with pytest.raises(InputError, match="is a profile of the advisor") as raised:
            ask(question)
        assert raised.value.hint == f"advisor export {path}  prints its command"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--json", "put --json before --: advisor explain --json -- vllm serve ..."),
        ("--vllm-version=1", "put --vllm-version before --: advisor explain --vllm-version ... -- vllm serve ..."),
    ],
)
def test_own_options_behind_the_command(word, hint):
    with pytest.raises(InputError, match="at word 4 is an option of `advisor explain`") as raised:
        told("vllm", "serve", "m", word)
    assert raised.value.hint == hint
    assert not any(option_status(option, release).exists for release in RELEASES for option in _OWN)


def test_a_yaml_file_is_what_it_holds(tmp_path):
    config, pod = tmp_path / "vllm.yaml", tmp_path / "pod.yml"
    config.write_text("model: m\nmax-num-seqs: 8\n")
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: x/vllm\n    command: [sh, -c]\n"
        "    args: ['set -e; vllm serve $MODEL_ID']\n    env: [{name: MODEL_ID, value: org/m}]\n"
    )
    assert (told(str(config))["model"], told(str(pod))["model"]) == ("m", "org/m")


LIMIT_S = 0.5


def test_answers_by_rules_within_half_a_second_of_computing():
    """Processor time of the whole process, which grows little when the machine is busy; and neither vLLM nor torch."""

    def told() -> None:
        assert run("--vllm-version", "0.26.0", "--gpu", "H200", "--", "vllm", "serve", "M").returncode == 0

    spent = pace.best_s(lambda: pace.child_s(told), pace.start_s, pace.START_S, LIMIT_S)
    assert spent < LIMIT_S


def test_imports_only_what_it_needs():
    script = (
        "import sys; from advisor.inspection.serve_command import Question, answer; "
        "answer(Question(('vllm', 'serve', 'M'), vllm_version='0.26.0', gpu='H200')); "
        "unwanted = {'optuna', 'rich', 'pydantic', 'numpy', 'httpx', 'torch', 'vllm'}; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & unwanted))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.engine
def test_the_installed_vllm_is_asked(engine_python, tiny_model):
    done = run(
        "--engine-python", engine_python, "--json", "--", "vllm", "serve", str(tiny_model), "--max-num-seqs", "8"
    )
    found = json.loads(done.stdout)
    assert found["source"] == "installed", found["findings"]
    assert found["resolved"]["max_num_seqs"] == 8
    assert done.returncode == 0


@pytest.mark.engine
def test_the_installed_vllm_is_asked_for_its_own_version_and_this_machine(engine_python, tiny_model):
    version = installed_version(engine_python)
    words = ["--engine-python", engine_python, "--vllm-version", version.partition("+")[0], "--gpu", "auto", "--json"]
    found = json.loads(run(*words, "--", "vllm", "serve", str(tiny_model), "--max-num-seqs", "8").stdout)
    assert (found["source"], found["vllm_version"]) == ("installed", version.partition("+")[0])
