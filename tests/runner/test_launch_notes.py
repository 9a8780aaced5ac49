"""What a trial is told where the server's own log does not say what it runs."""

import pytest

from advisor.engine.agreement import Agreement
from advisor.records import Active, Candidate, Command, Outcome
from advisor.runner.base import Job
from advisor.runner.launch import NOTHING_SAID, Launch


@pytest.mark.parametrize(
    ("version", "outcome", "said"),
    [(None, Outcome.OK, True), ("0.26.0", Outcome.OK, False), (None, Outcome.FAILED_TO_START, False)],
)
def test_settings_that_nobody_can_confirm_are_taken_on_trust_and_said_so(tmp_path, version, outcome, said):
    launch = Launch(Job(0, "baseline", Candidate(), (0,)), Command(("vllm",), {}), tmp_path)
    launch.outcome = outcome
    launch.check(Agreement(Active(vllm_version=version), None, None, ("another note",)))
    assert launch.notes == [*([NOTHING_SAID] if said else []), "another note"]
    assert launch.outcome is outcome
