"""Who answers `advisor explain`: the installed vLLM for itself and the GPU that is here, rules for everything else."""

from __future__ import annotations

import pytest

from advisor.engine.versions import same_release
from advisor.inspection import gpu, serve_command, target
from advisor.inspection.serve_command import Question, answer
from advisor.records import GpuFacts

H200 = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0")
PROCESSOR = GpuFacts("cpu", "Some processor", "cpu", 2, 24.0)


@pytest.fixture
def explained(monkeypatch):
    """(words after `advisor explain`) -> (who answered, GPU), on a machine with this vLLM and GPU."""

    def make(installed, here, version=None, name=None, command=("vllm", "serve", "M")):
        monkeypatch.setattr(serve_command, "installed_version", lambda python: installed)
        monkeypatch.setattr(gpu, "detect", lambda: here)
        theirs = {"ok": True, "resolved": {"max_num_seqs": 777}}
        monkeypatch.setattr(target, "ask", lambda *_, **__: theirs)
        found = answer(Question(command, vllm_version=version, gpu=name))
        assert (found["resolved"]["max_num_seqs"] == 777) == (found["source"] == "installed")
        return found["source"], found["gpu"]

    return make


@pytest.mark.parametrize(
    ("installed", "here", "version", "name", "source", "shown"),
    [
        # No version asked for: the installed vLLM, unless for another GPU.
        ("0.26.0+cu130", H200, None, None, "installed", "NVIDIA H200"),
        ("0.26.0+cu130", H200, None, "auto", "installed", "NVIDIA H200"),
        ("0.26.0+cu130", H200, None, "h200", "installed", "NVIDIA H200"),
        ("0.26.0+cu130", H200, None, "A100", "rules", "A100"),
        ("0.26.0+cu130", H200, None, "cpu", "rules", "cpu"),
        ("0.32.0+cpu", PROCESSOR, None, None, "installed", "CPU"),
        ("0.32.0+cpu", PROCESSOR, None, "cpu", "installed", "CPU"),
        ("0.32.0+cpu", PROCESSOR, None, "H200", "rules", "H200"),
        ("0.32.0+cpu", H200, None, "H200", "rules", "H200"),  # a CPU build does not know the GPU beside it
        # Its own version, and the GPU that is here.
        ("0.26.0+cu130", H200, "0.26.0", "H200", "installed", "NVIDIA H200"),
        ("0.26.0+cu130", H200, "v0.26", "auto", "installed", "NVIDIA H200"),
        ("0.26.0+cu130", H200, "0.26.0", "H100", "rules", "H100"),
        ("0.26.0+cu130", PROCESSOR, "0.26.0", "auto", "rules", "CPU"),
        ("0.32.0+cpu", PROCESSOR, "0.32.0", "auto", "installed", "CPU"),
        # A version and no GPU: not about this machine.
        ("0.26.0+cu130", H200, "0.26.0", None, "rules", None),
        # Another version.
        ("0.26.0+cu130", H200, "0.27.1", "auto", "rules", "NVIDIA H200"),
        ("0.26.1.dev3", H200, "0.26.1", "auto", "rules", "NVIDIA H200"),
        (None, H200, "0.26.0", "H200", "rules", "H200"),
        (None, PROCESSOR, None, "auto", "rules", "CPU"),
        (None, PROCESSOR, None, None, "rules", None),
    ],
)
def test_who_answers(explained, installed, here, version, name, source, shown):
    assert explained(installed, here, version, name) == (source, shown)


def test_the_tag_of_an_image_is_a_version_that_was_asked_for(explained):
    command = ("docker", "run", "--gpus", "all", "vllm/vllm-openai:v0.26.0", "--model", "M")
    assert explained("0.26.0+cu130", H200, name="auto", command=command) == ("installed", "NVIDIA H200")
    assert explained("0.25.1", H200, name="auto", command=command) == ("rules", "NVIDIA H200")


def test_an_image_called_by_a_date_is_explained_by_the_newest_rules(monkeypatch):
    """Not by the vLLM that happens to be installed here: the image holds another one."""
    monkeypatch.setattr(serve_command, "installed_version", lambda python: "0.11.0")
    command = ("docker", "run", "nvcr.io/nvidia/vllm:25.09-py3", "vllm", "serve", "M")
    found = answer(Question(command))
    assert (found["source"], found["vllm_version"]) == ("rules", "0.33.0")
    assert {"image-version-not-known", "version-assumed"} <= {one["code"] for one in found["findings"]}
    assert not any("newer than what is known" in one["message"] for one in found["findings"])
    told = answer(Question(command, vllm_version="0.10.2"))
    assert told["vllm_version"] == "0.10.2" and "version-assumed" not in {one["code"] for one in told["findings"]}


def test_builds_are_their_release_and_nightlies_are_none():
    assert same_release("0.26.0", "0.26.0+cu130") and same_release("v0.26", "0.26.0.post1")
    assert not same_release("0.26.0", "0.26.0rc1") and not same_release("0.26.1", "0.26.1.dev3+g12ab")
    assert not same_release("0.26.0", "0.26.1") and not same_release("nightly", "nightly")


def test_the_installed_vllm_is_not_asked_about_a_variables_name(monkeypatch):
    asked = []
    monkeypatch.setattr(serve_command, "installed_version", lambda python: "0.32.0+cpu")
    monkeypatch.setattr(gpu, "detect", lambda: PROCESSOR)
    monkeypatch.setattr(target, "ask", lambda *words, **_: asked.append(words[2]) or {"ok": True, "resolved": {}})
    answer(Question(("A=8; export B=$C; vllm serve m --max-num-seqs $A --port $P -cc.mode=$M $MORE",)))
    assert asked == [{"argv": ["m", "--max-num-seqs", "8"], "env": {}}]
