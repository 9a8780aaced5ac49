"""One real tune: the command line as a person uses it, real vLLM on the processor, and what is left afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from tests.conftest import ROOT

pytestmark = pytest.mark.engine

SPACE = """\
schema: advisor.space/1
name: one-at-a-time
settings:
  --max-num-seqs:
    why: a quarter of the throughput is lost for certain, so that the verdict is certain too
    values: [default, 1]
"""


@pytest.fixture(scope="module")
def place(engine_python, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tune with space")
    script = ROOT / "advisor" / "target" / "demo_model.py"
    subprocess.run([engine_python, str(script), str(folder / "demo")], check=True, capture_output=True)
    (folder / "space.yaml").write_text(SPACE)
    return folder


def advisor(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in that folder, with relative paths, as in a person's shell."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "VLLM_ATTENTION_BACKEND": "from-last-week"}
    return subprocess.run(
        [sys.executable, "-m", "advisor", *words], cwd=place, env=env, capture_output=True, text=True, timeout=1500
    )


def tune(place: Path, engine_python: str) -> subprocess.CompletedProcess[str]:
    return advisor(
        place, "tune", "--model", "demo", "--gpu", "auto", "--workload", "tiny", "--budget", "20m", "--samples", "1",
        "--serve-args", "--load-format dummy --max-model-len 512 --enforce-eager", "--env", "VLLM_CPU_KVCACHE_SPACE=1",
        "--space", "space.yaml", "--engine-python", engine_python, "--storage", "sqlite:///study.db",
        "--measure-all",  # a candidate that is far behind would be dropped, and this is about what is confirmed
    )  # fmt: skip


def test_a_real_tune_keeps_the_defaults_and_leaves_a_profile(place, engine_python):
    done = tune(place, engine_python)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "keep-defaults: the best candidate, --max-num-seqs=1, gave -" in done.stdout
    assert "not handed to the server: VLLM_ATTENTION_BACKEND" in done.stdout
    assert "serve with: VLLM_CPU_KVCACHE_SPACE=1 vllm serve demo --load-format dummy" in done.stdout

    profile = yaml.safe_load((place / "profiles" / "cpu" / "demo-tiny.yaml").read_text())
    measured = profile["measured"]
    assert measured["challenger"]["output_tok_s"]["mean"] < 0.7 * measured["default"]["output_tok_s"]["mean"]
    assert profile["model"]["random_weights"] is True
    assert profile["active"]["default"]["attention_backends"] == ["CPU_ATTN"]
    assert profile["serve"]["args"] == {"load-format": "dummy", "max-model-len": 512, "enforce-eager": True}

    (study,) = (path for path in (place / "runs").iterdir() if path.is_dir())  # beside it: failures.jsonl
    trials = [json.loads(line)["trial"] for line in (study / "trials.jsonl").read_text().splitlines()]
    assert [trial["phase"] for trial in trials] == ["baseline", "search", *["confirm"] * 6]
    assert {trial["outcome"] for trial in trials} == {"ok"}
    for trial in trials:
        assert (study / trial["samples"][0]["raw"]).exists() and (study / trial["folder"] / "server.log").exists()
        assert trial["command"]["argv"][1:4] == ["-m", "vllm.entrypoints.cli.main", "serve"]
    assert trials[0]["command"]["argv"][5:] == ["--load-format", "dummy", "--max-model-len", "512", "--enforce-eager"]
    ours = f"advisor-{study.name}"
    assert not [process for process in psutil.process_iter(["cmdline"]) if ours in " ".join(process.info["cmdline"] or [])]


def test_the_finished_study_launches_nothing_more(place, engine_python):
    (journal,) = (place / "runs").glob("*/trials.jsonl")
    before = journal.read_bytes()
    done = tune(place, engine_python)
    assert done.returncode == 0 and "keep-defaults" in done.stdout, done.stdout + done.stderr
    assert journal.read_bytes() == before


def test_the_storage_holds_every_trial(place):
    import optuna

    (name,) = optuna.get_all_study_names(f"sqlite:///{place}/study.db")
    assert len(optuna.load_study(study_name=name, storage=f"sqlite:///{place}/study.db").trials) == 8


def test_the_profile_is_exported(place):
    profile = "profiles/cpu/demo-tiny.yaml"
    command = advisor(place, "export", profile)
    assert command.returncode == 0
    assert command.stdout.split() == [
        "VLLM_CPU_KVCACHE_SPACE=1", "vllm", "serve", "demo", "--load-format", "dummy", "--max-model-len", "512", "--enforce-eager",
    ]  # fmt: skip
    exported = yaml.safe_load(advisor(place, "export", profile, "--to", "vllm-yaml").stdout)
    assert exported == {"model": "demo", "load-format": "dummy", "max-model-len": 512, "enforce-eager": True}
