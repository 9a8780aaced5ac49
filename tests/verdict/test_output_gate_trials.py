"""The gate on trials of a study: answers are files, the judgement is in the journal, and a study goes on after a restart."""

from __future__ import annotations

import dataclasses
import json

import pytest

from advisor.measure.answers import Answers, Reply, read_answers, write_answers
from advisor.records import Candidate, Outcome, Trial, from_json, to_json
from advisor.runner.base import Job
from advisor.verdict.output_gate import baseline_answers, gated
from tests.runner.fakes import fake_runner

BROKEN = Candidate({"FAKE_FAULT": "repeat_token"})
SOUND = Candidate({"--max-num-seqs": 8})


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """(folder, trials): the baseline twice, a sound candidate, a broken one, one that dies of the questions; not judged yet."""
    folder = tmp_path_factory.mktemp("study")
    runner = fake_runner(folder)
    jobs = [("baseline", Candidate()), ("search", SOUND), ("search", BROKEN), ("confirm", Candidate())]
    jobs.append(("search", Candidate({"FAKE_FAULT": "die_after_n:4"})))
    return folder, [
        runner.run(Job(number, phase, candidate, (0,), round=0 if phase == "confirm" else None))
        for number, (phase, candidate) in enumerate(jobs)
    ]


def test_answers_are_kept_in_the_launch_folder(study):
    folder, trials = study
    assert [trial.answers for trial in trials[:2]] == ["launches/0000-baseline/answers.json", "launches/0001-search/answers.json"]
    answers = read_answers(folder / trials[0].answers)
    assert {(reply.mode, reply.kind) for reply in answers.replies} == {
        (mode, kind) for mode in ("alone", "together", "mixed") for kind in ("greedy", "forced", "prompt")
    } - {("together", "prompt")}
    assert all(reply.ok for reply in answers.replies)


def test_a_broken_candidate_becomes_wrong_output_and_a_sound_one_stays(study):
    folder, trials = study
    sound = gated(trials[1], trials[:1], folder)
    assert sound.outcome is Outcome.OK and sound.gate.passed and sound.gate.baselines == 1
    broken = gated(trials[2], trials[:2], folder)
    assert broken.outcome is Outcome.WRONG_OUTPUT and broken.reason == broken.gate.reason
    assert "one token repeated" in broken.reason


def test_the_baseline_is_judged_by_itself(study):
    folder, trials = study
    first, again = gated(trials[0], [], folder), gated(trials[3], trials[:3], folder)
    assert first.gate.passed and first.gate.baselines == 1
    assert again.gate.passed and again.gate.baselines == 2


def test_a_server_that_dies_of_the_questions_has_crashed(study):
    folder, trials = study
    assert trials[4].outcome is Outcome.CRASHED
    assert gated(trials[4], trials[:4], folder) == trials[4]


def test_judgements_survive_the_journal(study):
    folder, trials = study
    broken = gated(trials[2], trials[:2], folder)
    line = json.dumps(to_json(broken), allow_nan=False)
    assert from_json(Trial, json.loads(line)) == broken
    restored = [from_json(Trial, json.loads(json.dumps(to_json(trial)))) for trial in trials]
    assert gated(restored[2], restored[:2], folder).gate == broken.gate
    assert len(baseline_answers(restored, folder)) == 2


def test_a_journal_of_an_older_advisor_is_read_and_not_judged(study):
    folder, trials = study
    old = dataclasses.replace(trials[1], answers=None)
    assert gated(old, trials[:1], folder) == old
    assert gated(trials[1], [dataclasses.replace(trials[0], answers=None)], folder).gate.passed is None


def test_a_credited_figure_of_a_broken_launch_is_nobodys(study):
    folder, trials = study
    credited = dataclasses.replace(trials[2], outcome=Outcome.NOT_AS_REQUESTED, reason="x", credited_to=SOUND)
    result = gated(credited, trials[:1], folder)
    assert result.outcome is Outcome.WRONG_OUTPUT and result.credited_to is None


def test_answers_of_another_format_count_as_missing(study, tmp_path):
    folder, trials = study
    write_answers(folder / "other.json", Answers((Reply("alone", "greedy", "x", 1, "y"),), format="advisor.answers/0"))
    other = dataclasses.replace(trials[1], answers="other.json")
    assert gated(other, trials[:1], folder) == other
