"""failures.jsonl: what earlier studies of the same surroundings saw, and nothing else."""

from __future__ import annotations

import dataclasses
import json

import pytest

from advisor.records import EngineFacts, Facts, GpuFacts, ModelFacts, Outcome
from advisor.search.feasibility import Feasibility
from advisor.study.failures import FILE, KnownFailures, surroundings
from tests.study_help import trial

SCOPE = {"vllm": "0.26.0", "gpu": "H200", "model": "m", "served": "s"}


def known(folder, study="monday", scope=SCOPE, load="chat"):
    return KnownFailures(folder / FILE, scope, load, study)


def failed(number, settings, outcome=Outcome.OUT_OF_MEMORY, start_s=None):
    found = trial(number, settings, outcome=outcome, reason=f"out of memory while warming up: 1{number} GiB")
    return dataclasses.replace(found, start_s=start_s)


def two_failures(folder, **options):
    file = known(folder)
    file.add(trial(0, {}, 100.0, phase="baseline"), {"max_num_seqs": 256})
    for number, seqs in ((1, 528), (2, 1024)):
        file.add(failed(number, {"attention_backend": "FLASHINFER", "max_num_seqs": seqs}, **options), None)
    return file


def test_a_later_study_skips_what_two_failures_foretell(tmp_path):
    two_failures(tmp_path)
    learned = Feasibility(tuple(known(tmp_path, "tuesday").read())).regions
    assert [region.text for region in learned] == ["attention_backend=FLASHINFER and max_num_seqs >= 528"]
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["study"] for line in lines] == ["monday"] * 3 and lines[1]["cause"][0] == "out_of_memory"


@pytest.mark.parametrize("name", list(SCOPE))
def test_other_surroundings_learn_nothing_from_it(tmp_path, name):
    two_failures(tmp_path)
    assert list(known(tmp_path, "tuesday", {**SCOPE, name: "other"}).read()) == []


def test_what_failed_under_load_counts_for_that_load_only(tmp_path):
    two_failures(tmp_path, start_s=30.0)
    assert not Feasibility(tuple(known(tmp_path, "tuesday", load="batch").read())).regions
    assert Feasibility(tuple(known(tmp_path, "tuesday", load="chat").read())).regions


def test_the_study_itself_learns_from_its_journal_and_writes_each_trial_once(tmp_path):
    two_failures(tmp_path)
    two_failures(tmp_path)  # as when the study goes on
    assert list(known(tmp_path).read()) == []
    assert len((tmp_path / FILE).read_text().splitlines()) == 3


def test_a_damaged_or_missing_file_is_as_good_as_none(tmp_path):
    two_failures(tmp_path)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"half a li')
    assert len(list(known(tmp_path, "tuesday").read())) == 3
    (tmp_path / FILE).write_bytes(b"\xff\x00 nothing\n[1]\n{}\n")
    assert list(known(tmp_path, "tuesday").read()) == []
    (tmp_path / FILE).unlink()
    assert list(known(tmp_path, "tuesday").read()) == []


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path):
    (tmp_path / "file").write_text("")
    KnownFailures(tmp_path / "file" / FILE, SCOPE, "chat", "monday").add(failed(1, {"a": 1}), None)


def test_surroundings_are_version_gpu_model_and_what_is_served():
    gpu = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8)
    engine = EngineFacts("py", "3.12", "0.26.0", "2.11", "cuda")
    model = ModelFacts("m", "LlamaForCausalLM", "abc", 2, 128, 2, 2, 64, 1000, 4096)
    request = type("R", (), {"serve_args": ("--max-model-len", "8192"), "serve_env": {}})()
    here = surroundings(request, Facts(gpu, engine, model))
    others = [
        surroundings(request, Facts(dataclasses.replace(gpu, name="NVIDIA H100"), engine, model)),
        surroundings(request, Facts(gpu, dataclasses.replace(engine, vllm_version="0.27.1"), model)),
        surroundings(request, Facts(gpu, engine, dataclasses.replace(model, config_hash="abd"))),
        surroundings(type("R", (), {"serve_args": (), "serve_env": {}})(), Facts(gpu, engine, model)),
    ]
    assert here not in others and here == surroundings(request, Facts(gpu, engine, dataclasses.replace(model, model="elsewhere")))
