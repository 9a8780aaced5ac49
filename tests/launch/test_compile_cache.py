"""A start that fails on broken compiled code: once more with an empty cache, the first error kept; no verdict on the settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor.launch import caches, server
from advisor.launch.failure import LaunchFailed, compile_cache_broken
from advisor.launch.server import Server
from advisor.records import Command, Outcome

from .conftest import CPU, FAKE, PATIENT, SHORT

# What a release writes, as it stands in its sources.
HEAD = """(EngineCore_DP0 pid=7) ERROR 11-30 03:00:00 [core.py:900] EngineCore failed to start.
(EngineCore_DP0 pid=7) ERROR 11-30 03:00:00 [core.py:900] Traceback (most recent call last):
(EngineCore_DP0 pid=7) ERROR 11-30 03:00:00 [core.py:900]   File "/v/core.py", line 1, in run_engine_core
(EngineCore_DP0 pid=7) ERROR 11-30 03:00:00 [core.py:900]   File "/v/worker.py", line 1, in {function}
(EngineCore_DP0 pid=7) ERROR 11-30 03:00:00 [core.py:900] {exception}
"""


def log(exception: str, function: str = "profile_run", then: str = "load") -> str:
    frame = f'(EngineCore_DP0 pid=7) ERROR 11-30 03:00:00 [core.py:900]   File "/v/c.py", line 1, in {then}\n'
    text = HEAD.format(function=function, exception=exception)
    head, last = text.rstrip("\n").rsplit("\n", 1)
    return f"{head}\n{frame}{last}\n"


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (log("AssertionError: failed to get the hash of the compiled graph"), True),
        (log("AssertionError: failed to get the file path of the compiled graph"), True),
        (log("RuntimeError: vLLM failed to compile the model. ... leading to a corrupted compilation artifact. We ..."), True),
        (log("EOFError: Ran out of input", then="load_compiled_function"), True),
        (log("_pickle.UnpicklingError: pickle data was truncated"), True),
        (log("SyntaxError: '{' was never closed (<unknown>, line 3)", then="initialize_cache"), True),
        (log("FileNotFoundError: [Errno 2] No such file or directory: '/c/torch_compile_cache/0a/rank_0_0/artifact'"), True),
        (log("EOFError: Ran out of input", function="load_model"), False),  # weights
        (log("torch.OutOfMemoryError: CUDA out of memory"), False),
        (log("ValueError: failed to validate"), False),
        ("WARNING 11-30 03:00:00 [decorators.py:318] Compiling model again ... Compile cache file corrupted.\n", False),
        ("", False),
    ],
)
def test_which_failures_are_the_caches(text: str, broken: bool) -> None:
    assert compile_cache_broken(text) is broken


SCRIPT = """
import os, runpy, sys
root = os.environ.get("VLLM_CACHE_ROOT", "")
if {condition}:
    sys.stdout.write({text!r} if not {otherwise!r} or root.endswith("/old") else {otherwise!r})
    sys.exit(1)
sys.argv = [{fake!r}, *sys.argv[1:]]
runpy.run_path({fake!r}, run_name="__main__")
"""


def launch(tmp_path: Path, condition: str, text: str, otherwise: str = "", **options) -> Server:
    """A server that writes `text` and ends where the condition holds; `otherwise` instead, on another cache than `old`."""
    script = tmp_path / "serve.py"
    script.write_text(SCRIPT.format(condition=condition, text=text, otherwise=otherwise, fake=str(FAKE)))
    command = Command((sys.executable, str(script), "serve", "some/model"), {"FAKE_TIME_SCALE": "0.1"})
    return Server(command, "advisor-test", tmp_path / "launch", CPU, PATIENT, grace=SHORT, **options)


BROKEN = log("AssertionError: failed to get the hash of the compiled graph")


def test_a_broken_cache_is_replaced_once_and_the_first_error_kept(tmp_path: Path) -> None:
    study, told = tmp_path / "study", []
    (study / "cache").mkdir(parents=True)
    with launch(
        tmp_path, 'root.endswith("/cache")', BROKEN, caches=caches.study_cache(study, {}), retried=told.append,
        renew_caches=lambda: caches.renewed_cache(study, {}),
    ) as running:  # fmt: skip
        assert running.start_s > 0 and running.lost_s > 0
    assert len(told) == 1 and "an empty compile cache: AssertionError: failed to get the hash" in told[0]
    assert "failed to get the hash" in (running.folder / server.FIRST_CACHE_LOG).read_text()
    assert caches.study_cache(study, {})["VLLM_CACHE_ROOT"] == str(study / "cache-2")  # later launches have it too
    assert (study / "cache").is_dir()


def test_what_fails_on_an_empty_cache_too_is_the_candidates_failure(tmp_path: Path) -> None:
    renewed = []

    def renew():
        renewed.append(1)
        return {"VLLM_CACHE_ROOT": str(tmp_path / "empty")}

    with pytest.raises(LaunchFailed) as caught:
        launch(tmp_path, "True", BROKEN, renew_caches=renew).__enter__()
    assert renewed == [1] and not caught.value.retryable
    assert caught.value.outcome is Outcome.FAILED_TO_START and "failed to get the hash" in caught.value.reason


def test_the_real_error_is_the_one_that_counts(tmp_path: Path) -> None:
    """A compilation that fails leaves code behind which hides why: with an empty cache the cause shows again."""
    out_of_memory = log("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(LaunchFailed) as caught:
        launch(tmp_path, "True", BROKEN, otherwise=out_of_memory, caches={"VLLM_CACHE_ROOT": str(tmp_path / "old")},
               renew_caches=lambda: {"VLLM_CACHE_ROOT": str(tmp_path / "new")}).__enter__()  # fmt: skip
    assert caught.value.outcome is Outcome.OUT_OF_MEMORY


def test_without_a_way_to_renew_nothing_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="failed to get the hash"):
        launch(tmp_path, "True", BROKEN).__enter__()
    assert not (tmp_path / "launch" / server.FIRST_CACHE_LOG).exists()


def test_a_persons_own_cache_is_left_alone(tmp_path: Path) -> None:
    assert caches.study_cache(tmp_path, {"VLLM_CACHE_ROOT": "/theirs"}) == {}
    assert caches.renewed_cache(tmp_path, {})["VLLM_CACHE_ROOT"] == str(tmp_path / "cache-2")
    assert caches.renewed_cache(tmp_path, {})["VLLM_CACHE_ROOT"] == str(tmp_path / "cache-3")


def test_kernels_are_shared_by_a_studys_launches_and_go_with_a_broken_cache(tmp_path: Path) -> None:
    """Left alone, Inductor moves Triton's cache below each configuration's own folder, and all kernels are built for each."""
    assert caches.study_cache(tmp_path, {})["TRITON_CACHE_DIR"] == str(tmp_path / "cache" / "triton")
    assert caches.renewed_cache(tmp_path, {})["TRITON_CACHE_DIR"] == str(tmp_path / "cache-2" / "triton")
    theirs = {"TRITON_CACHE_DIR": "/theirs"}
    assert "TRITON_CACHE_DIR" not in {**caches.study_cache(tmp_path, theirs), **caches.renewed_cache(tmp_path, theirs)}


def test_what_the_inspection_found_out_about_the_models_class_is_lent_to_a_studys_cache(tmp_path: Path) -> None:
    usual, study = tmp_path / "home" / "vllm" / "modelinfos", tmp_path / "study"
    usual.mkdir(parents=True)
    for name, text in {"llama.json": "new", "qwen.json": "other", "notes.txt": "no"}.items():
        (usual / name).write_text(text)
    kept = study / "cache" / "modelinfos"
    kept.mkdir(parents=True)
    (kept / "llama.json").write_text("its own")
    inherited = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    caches.lend_model_classes(caches.study_cache(study, inherited), inherited)
    assert {path.name: path.read_text() for path in kept.iterdir()} == {"llama.json": "its own", "qwen.json": "other"}


def test_nothing_is_lent_to_a_cache_that_a_person_chose_or_where_there_is_nothing(tmp_path: Path) -> None:
    inherited = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    caches.lend_model_classes(caches.study_cache(tmp_path / "study", inherited), inherited)
    assert not (tmp_path / "study").exists()
    (tmp_path / "home" / "vllm" / "modelinfos").mkdir(parents=True)
    caches.lend_model_classes(caches.study_cache(tmp_path, {**inherited, "VLLM_CACHE_ROOT": "/theirs"}), inherited)
    assert not Path("/theirs").exists()


def found_out(root: Path) -> Path:
    """What an inspection leaves below a cache of vLLM's."""
    (root / "modelinfos").mkdir(parents=True)
    (root / "modelinfos" / "llama.json").write_text("found")
    return root


@pytest.mark.parametrize("variables", [{"XDG_CACHE_HOME": "{}"}, {"HOME": "{}"}, {"HOME": "{}", "XDG_CACHE_HOME": ""}])
def test_what_was_found_out_is_looked_for_where_this_environment_has_it(tmp_path: Path, variables: dict) -> None:
    home = tmp_path / "home"
    found_out(home / ("vllm" if variables.get("XDG_CACHE_HOME") else ".cache/vllm"))
    caches.lend_model_classes(caches.study_cache(tmp_path, {}), {k: v.format(home) for k, v in variables.items()})
    assert (tmp_path / "cache" / "modelinfos" / "llama.json").read_text() == "found"


def test_a_cache_that_a_person_named_for_the_server_alone_is_lent_nothing(tmp_path: Path) -> None:
    """--env VLLM_CACHE_ROOT: the inspection wrote there, and the server looks there."""
    found_out(tmp_path / "home" / "vllm")
    with_theirs = {"XDG_CACHE_HOME": str(tmp_path / "home"), "VLLM_CACHE_ROOT": "/theirs"}
    caches.lend_model_classes(caches.study_cache(tmp_path, {}), with_theirs)
    assert not (tmp_path / "cache").exists()


def test_a_user_without_a_home_is_lent_nothing_and_told_nothing(tmp_path: Path, monkeypatch) -> None:
    """A container with a number for a user: neither HOME nor a line in passwd. vLLM makes a folder called ~ then."""
    monkeypatch.setattr(caches.os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    caches.lend_model_classes(caches.study_cache(tmp_path, {}), {})
    assert not (tmp_path / "cache").exists()
    found_out(tmp_path / "~" / ".cache" / "vllm")
    caches.lend_model_classes(caches.study_cache(tmp_path, {}), {})
    assert (tmp_path / "cache" / "modelinfos" / "llama.json").exists()


@pytest.mark.parametrize("broken", ["unreadable", "unwritable", "full"])
def test_files_that_cannot_be_lent_are_no_error(tmp_path: Path, monkeypatch, broken: str) -> None:
    """The server finds out for itself then, or says why it cannot."""
    found_out(tmp_path / "home" / "vllm")
    cache = caches.study_cache(tmp_path, {})

    def refuse(*_):
        raise PermissionError(13, "Permission denied") if broken != "full" else OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", refuse if broken == "unreadable" else Path.is_dir)
        patch.setattr(caches, "write_atomically", refuse)
        caches.lend_model_classes(cache, {"XDG_CACHE_HOME": str(tmp_path / "home")})
    assert not list((tmp_path / "cache").glob("modelinfos/*.json"))
