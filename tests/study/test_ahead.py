"""The launcher that is begun before its first server is wanted: it imports beside the inspection, and nothing of it is left."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from advisor import tune as pipeline
from advisor.errors import EnvironmentMismatch, InputError, Interrupted
from advisor.inspection.inspect_all import inspect_all
from advisor.launch.launcher import Launcher
from advisor.launch.warm_choice import COLD, WARM
from advisor.progress import Silent
from advisor.records import Candidate, FirstFacts, GpuFacts, Outcome, Trial
from advisor.study import ahead, setup
from advisor.study.ahead import Ahead, folder_of_tune, forks_next, may_be_forked
from tests.test_tune import EAGER, FACTS, children, install_fakes, request_for  # noqa: F401

WARM_SITE = Path(__file__).parents[1] / "fakes" / "warm_site"
FIRST = FirstFacts(FACTS.gpu, FACTS.model)


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    install_fakes(monkeypatch)
    monkeypatch.setattr(ahead, "usable_cores", lambda: 16)


@pytest.fixture
def imports(tmp_path) -> Path:
    """One line for each import of the fake vLLM: the process's id."""
    return tmp_path / "imports"


def imported(imports: Path) -> bool:
    """Whether a line is there: the file is, a moment before."""
    return imports.exists() and imports.read_text().endswith("\n")


@pytest.fixture
def request_with(request_for, imports):  # noqa: F811
    def make(env=(), **changes):
        request = request_for(EAGER, **{"trials": 0, **changes})
        more = {"PYTHONPATH": str(WARM_SITE), "FAKE_IMPORTS": str(imports), **dict(env)}
        return dataclasses.replace(request, serve_env={**request.serve_env, **more})

    return make


def wait_for(what, limit_s=30.0):
    end = time.monotonic() + limit_s
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


def inspection(monkeypatch, then):
    """An inspection that tells what is known first, and then does something that takes a while."""

    def inspect(*arguments):
        arguments[-1](FIRST)
        then()
        return FACTS

    monkeypatch.setattr(setup, "inspect_all", inspect)


def begun_launchers(monkeypatch) -> list[Launcher]:
    """Those that are begun ahead, as soon as they are."""
    begun: list[Launcher] = []
    monkeypatch.setattr(ahead, "Launcher", lambda *args, **more: begun.append(Launcher(*args, **more)) or begun[-1])
    return begun


def launchers(imports, trials) -> list[str]:
    """Ids of the processes that imported and were no executed server."""
    every = imports.read_text().split()
    return every[: len(every) - sum(trial.launcher == COLD for trial in trials)]


def trial(phase, launcher=WARM, outcome=Outcome.OK):
    return Trial(0, phase, Candidate(), outcome, launcher=launcher, total_s=1.0)


# ---------------------------------------------------------------- it imports meanwhile


@pytest.mark.slow
def test_the_imports_are_made_while_the_inspection_lasts_and_once(request_with, monkeypatch, imports):
    seen = []

    def until_imported():
        assert wait_for(lambda: imported(imports)), "nothing was imported during the inspection"
        seen.extend(children())
        assert not (request.runs).exists()  # the study has no folder yet, and gets none by this
        assert wait_for(lambda: select.select([begun[0]._socket], [], [], 0)[0]), "it does not get ready"

    begun = begun_launchers(monkeypatch)
    inspection(monkeypatch, until_imported)
    request = request_with()
    answer = pipeline.tune(request, Silent())
    first = answer.result.trials[0]
    assert first.phase == "baseline" and first.launcher == "warm", first.notes
    assert launchers(imports, answer.result.trials) == [str(process.pid) for process in seen]  # the one process, which was used
    assert first.launcher_import_s > 0 and first.launcher_import_s == first.imports_s
    assert (first.launcher_s or 0.0) < 0.5  # the rest of its imports were waited for, if any
    assert (answer.study_folder / "launcher.log").exists() and children() == []


@pytest.mark.slow
def test_only_the_rest_of_the_imports_is_waited_for(request_with, monkeypatch, imports):
    """The inspection is over at once: then it is as if the launcher had been begun by the first launch."""
    inspection(monkeypatch, lambda: None)
    trials = pipeline.tune(request_with(), Silent()).result.trials
    assert trials[0].launcher == "warm" and trials[0].launcher_s > 0 and trials[0].launcher_import_s > 0
    assert len(launchers(imports, trials)) == 1


@pytest.mark.slow
def test_what_imports_said_before_there_was_a_folder_is_in_its_log(request_with, monkeypatch, imports):
    inspection(monkeypatch, lambda: wait_for(lambda: imported(imports)))
    answer = pipeline.tune(request_with({"FAKE_IMPORT": "thread"}.items()), Silent())
    assert "importing vllm.compilation.backends started a thread" in (answer.study_folder / "launcher.log").read_text()


@pytest.mark.slow
def test_a_launcher_that_died_meanwhile_is_made_anew(request_with, monkeypatch, imports):
    def killed():
        assert wait_for(lambda: imported(imports))
        os.kill(int(imports.read_text()), signal.SIGKILL)

    inspection(monkeypatch, killed)
    trials = pipeline.tune(request_with(), Silent()).result.trials
    assert trials[0].launcher == "warm" and len(launchers(imports, trials)) == 2


# ---------------------------------------------------------------- nothing is left


@pytest.mark.parametrize("way", ["error", "ctrl-c", "SIGTERM"])
def test_nothing_is_left_when_the_inspection_does_not_end_well(request_with, monkeypatch, imports, way):
    """The imports of this launcher would take a minute more."""
    started = []

    def fail():
        assert wait_for(lambda: imported(imports))
        started.extend(children())
        if way == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1.0)
        raise EnvironmentMismatch("vLLM does not suit") if way == "error" else KeyboardInterrupt

    inspection(monkeypatch, fail)
    request, begun = request_with({"FAKE_IMPORT": "slow"}.items()), time.monotonic()
    with pytest.raises(EnvironmentMismatch if way == "error" else Interrupted) as caught:
        pipeline.tune(request, Silent())
    assert way != "error" or caught.value.problem == "vLLM does not suit"
    assert started and not any(living(process) for process in started) and children() == []
    assert not request.runs.exists() and time.monotonic() - begun < 45


PROGRAM = """
import sys, time
from advisor.records import FirstFacts
from advisor.study import ahead
from advisor.study.ahead import Ahead, folder_of_tune
from tests.test_tune import FACTS, requests_in
from pathlib import Path
ahead.usable_cores = lambda: 16
make = requests_in(Path(sys.argv[1]))
request = make("settings: {enforce_eager: {values: [default, true]}}", env=sys.argv[2:])
with Ahead(request, lambda facts: folder_of_tune(request, facts)) as begun:
    begun.begin(FirstFacts(FACTS.gpu, FACTS.model))
    print(begun.launcher.pid, flush=True)
    time.sleep(100)
"""


@pytest.mark.slow
@pytest.mark.parametrize("variables", [["FAKE_IMPORT=slow"], ["FAKE_IMPORT=asks", "FAKE_ASK_S=60"]])
def test_it_does_not_outlive_a_killed_advisor(tmp_path, imports, variables):
    """Nor does a child that answers for its imports."""
    words = [f"PYTHONPATH={WARM_SITE}", f"FAKE_IMPORTS={imports}", *variables]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *words], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    ) as advisor:  # fmt: skip
        process = psutil.Process(int(advisor.stdout.readline()))
        assert wait_for(lambda: imported(imports))
        if len(variables) > 1:
            assert wait_for(process.children)
        left = [process, *process.children()]
        advisor.kill()
    assert wait_for(lambda: not any(living(each) for each in left))


def living(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_inspections_own_error_is_the_one_that_is_told(request_with, monkeypatch, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    monkeypatch.setattr(setup, "inspect_all", inspect_all)
    with pytest.raises(EnvironmentMismatch, match="target interpreter /nope/python does not exist"):
        pipeline.tune(request_with(model=str(model), engine_python="/nope/python"), Silent())
    assert children() == []


def test_what_is_wrong_with_a_journal_is_told_by_whoever_opens_it(request_with):
    request = request_with(study="broken")
    folder = request.runs / "broken"
    folder.mkdir(parents=True)
    (folder / "trials.jsonl").write_text("no event\n")
    with pytest.raises(InputError):
        folder_of_tune(request, FIRST)
    with Ahead(request, lambda facts: folder_of_tune(request, facts)) as begun:
        begun.begin(FIRST)
        assert begun.launcher is None


# ---------------------------------------------------------------- where it is not begun


@pytest.fixture
def none_begun(monkeypatch):
    """Whoever begins a launcher ahead fails the test."""

    def begun(*_, **__):
        raise AssertionError("a launcher was begun")

    monkeypatch.setattr(ahead, "Launcher", begun)


def test_the_fixture_would_see_one(request_with, none_begun, monkeypatch):
    inspection(monkeypatch, lambda: None)
    with pytest.raises(AssertionError, match="a launcher was begun"):
        pipeline.tune(request_with(), Silent())


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"launcher": COLD}, {"objective": "output_tok_s,start_s"}, {"serve_args": "--tensor-parallel-size 2"}]
)
def test_a_tune_that_forks_nothing_begins_none(request_with, none_begun, monkeypatch, changes):
    inspection(monkeypatch, lambda: None)
    answer = pipeline.tune(request_with(**changes), Silent())
    assert {trial.launcher for trial in answer.result.trials} == {"cold"}


def test_two_cores_are_left_to_the_inspection(request_with, none_begun, monkeypatch):
    with Ahead(request_with(), lambda facts: folder_of_tune(request_with(), facts)) as begun:
        monkeypatch.setattr(ahead, "usable_cores", lambda: 2)
        begun.begin(FIRST)
        assert begun.launcher is None
        monkeypatch.setattr(ahead, "usable_cores", lambda: 3)
        with pytest.raises(AssertionError, match="a launcher was begun"):
            begun.begin(FIRST)


def test_a_dry_run_begins_none(request_with, none_begun, monkeypatch):
    monkeypatch.setattr(setup, "inspect_all", lambda *words: words[-1](FIRST) or FACTS)
    pipeline.plan(request_with(), Silent())


@pytest.mark.slow
def test_a_finished_study_begins_none(request_with, monkeypatch):
    inspection(monkeypatch, lambda: None)
    trials = pipeline.tune(request_with(), Silent()).result.trials
    with monkeypatch.context() as patch:
        patch.setattr(ahead, "Launcher", None)  # which cannot be called
        assert pipeline.tune(request_with(), Silent()).result.trials == trials


@pytest.mark.parametrize(
    ("trials", "changes", "forks"),
    [
        ([], {}, True),
        ([trial("baseline", outcome=Outcome.CRASHED)], {}, True),
        ([trial("baseline")], {}, True),
        ([trial("baseline"), trial("search")], {}, True),
        ([trial("baseline", COLD)], {}, False),  # it goes on the way it began
        ([trial("baseline"), trial("search")], {"trials": 1}, False),
        ([trial("baseline"), dataclasses.replace(trial("search"), total_s=601.0)], {}, False),  # of a budget of 600
        ([trial("baseline"), trial("search"), trial("confirm", COLD)], {}, False),
    ],
)
def test_a_journal_tells_whether_anything_is_forked_next(request_with, trials, changes, forks):
    assert forks_next(request_with(**{"trials": None, **changes}), trials) is forks


@pytest.mark.parametrize(
    ("changes", "kind", "forked"),
    [
        ({}, "cpu", True),
        ({}, "cuda", True),
        ({}, "rocm", False),
        ({"launcher": COLD}, "cpu", False),
        ({"objective": "start_s"}, "cpu", False),
        ({"serve_args": "--tensor-parallel-size 2"}, "cuda", False),
    ],
)
def test_request_and_machine_tell_whether_anything_can_be(request_with, changes, kind, forked):
    gpu = GpuFacts(kind, "G", "g", 1, 24.0)
    assert may_be_forked(request_with(**changes), FirstFacts(gpu, FACTS.model)) is forked
