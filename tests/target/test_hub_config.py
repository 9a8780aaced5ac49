"""hub_config.py: what each complaint of the hub's client becomes, and a model that is in the cache of the real client."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path

import pytest

from advisor.errors import EnvironmentMismatch
from advisor.inspection.engine import describe_model
from advisor.target import hub_config

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for huggingface_hub whose download does `hub.download`."""
    module, errors = types.ModuleType("huggingface_hub"), types.ModuleType("huggingface_hub.errors")
    errors.EntryNotFoundError = type("EntryNotFoundError", (Exception,), {})
    errors.LocalEntryNotFoundError = type("LocalEntryNotFoundError", (errors.EntryNotFoundError,), {})
    errors.OfflineModeIsEnabled = type("OfflineModeIsEnabled", (Exception,), {})
    errors.RepositoryNotFoundError = type("RepositoryNotFoundError", (Exception,), {})
    errors.GatedRepoError = type("GatedRepoError", (errors.RepositoryNotFoundError,), {})
    errors.RevisionNotFoundError = type("RevisionNotFoundError", (Exception,), {})
    module.errors = errors
    module.hf_hub_download = lambda model, name, **options: module.download(model, name, **options)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    monkeypatch.setattr(hub_config, "hub_out_of_reach", lambda: False)
    monkeypatch.setattr(hub_config, "vllm_is_here", lambda: True)
    return module


def test_an_interpreter_without_vllm_is_told_before_the_hub_is_asked(tmp_path):
    """A real one: this Python without its packages."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(EnvironmentMismatch, match=r"has no vLLM$") as raised:
        describe_model(str(bare), "Qwen/Qwen3-8B", [])
    assert "--engine-python" in raised.value.hint


def test_a_config_and_its_commit(hub, tmp_path: Path):
    folder = tmp_path / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    asked = []
    hub.download = lambda *words, **options: asked.append((words, options["revision"])) or str(folder / "config.json")
    answer = hub_config.respond({"model": "org/name", "revision": "v1"})
    assert answer == {"ok": True, "config": {"model_type": "llama"}, "revision": COMMIT}
    assert asked == [(("org/name", "config.json"), "v1")]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("LocalEntryNotFoundError", "model_unreachable", "neither cached nor reachable"),
        ("OfflineModeIsEnabled", "model_unreachable", "neither cached nor reachable"),
        ("EntryNotFoundError", "config_missing", "no config.json"),
        ("GatedRepoError", "model_unreachable", "gated"),
        ("RepositoryNotFoundError", "model_unreachable", "knows no model"),
        ("RevisionNotFoundError", "model_unreachable", "no revision v1"),
        (None, "model_unreachable", "OSError"),
    ],
)
def test_complaints_are_told_apart(hub, error, kind, said):
    def download(*words, **options):
        raise getattr(hub.errors, error)("long story") if error else OSError("connection reset")

    hub.download = download
    answer = hub_config.respond({"model": "org/name", "revision": "v1"})
    assert (answer["ok"], answer["error_type"]) == (False, kind)
    assert said in answer["error"]


def test_a_broken_config_is_told(hub, tmp_path: Path):
    (tmp_path / "config.json").write_text("{")
    hub.download = lambda *words, **options: str(tmp_path / "config.json")
    assert hub_config.respond({"model": "org/name"})["error_type"] == "config_unreadable"


def test_a_hub_out_of_reach_is_not_tried_for_long(hub, monkeypatch):
    monkeypatch.setattr(hub_config, "hub_out_of_reach", lambda: True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    seen = []

    def download(*words, local_files_only, **options):
        seen.append((local_files_only, os.environ["HF_HUB_OFFLINE"]))
        raise hub.errors.LocalEntryNotFoundError

    hub.download = download
    assert hub_config.respond({"model": "org/name"})["error_type"] == "model_unreachable"
    assert seen == [(True, "1")]


@pytest.mark.engine
def test_a_cached_model_is_found_without_a_network(engine_python, tmp_path: Path):
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 3}
    (snapshot / "config.json").write_text(json.dumps(config))
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    found = describe_model(engine_python, "org/name", [], offline)
    assert (found.layers, found.revision) == (3, COMMIT)
