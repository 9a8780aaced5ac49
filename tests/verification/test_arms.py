"""Who is launched beside the default, read from profiles: built ones, and the oldest that is committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.render import serve_command
from advisor.errors import InputError
from advisor.records import Candidate
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.store import read_profile
from advisor.verification.arms import challenger, recommended
from tests.verification.profiles import LLAMA, SERVE_ARGS, SERVE_ENV, alone, improved, kept

SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_a_winner_is_read_by_its_settings():
    """The list is cut in the label; the whole of it is what ran."""
    settings = {"attention_backend": "TRITON_ATTN", "cudagraph_capture_sizes": SIZES}
    found = recommended(improved(settings))
    assert found == Candidate(settings) and "(9)" in found.label


@pytest.mark.parametrize(
    "settings",
    [
        {"enforce_eager": True},
        {"cudagraph_capture_sizes": [64]},
        {"cudagraph_capture_sizes": [1, 2]},
        {"--max-num-seqs": 512},
        {"compilation_mode": "NONE", "cudagraph_mode": "FULL"},
        {"VLLM_CPU_OMP_THREADS_BIND": "0-1"},
    ],
)
def test_every_kind_of_setting_makes_its_own_command_again(settings):
    assert recommended(improved(settings)) == Candidate(settings)


@pytest.mark.parametrize("settings", [{"cudagraph_mode": "PIECEWISE"}, {"--block-size": 32}, {"VLLM_USE_V2_MODEL_RUNNER": 1}])
def test_a_default_with_speculation_is_no_part_of_what_is_recommended(settings):
    """JSON in the person's own arguments stays theirs, also where the winner is read from the command."""
    own = ("--speculative-config", '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}', *SERVE_ARGS)
    sides = [Candidate(), Candidate(settings)]
    default, tuned = (serve_command("/e/bin/python", "/models/Small", own, SERVE_ENV, side, "0.26.0") for side in sides)
    profile = improved(settings, serve_args=own, baseline_command=default, tuned_command=tuned)
    assert recommended(profile) == Candidate(settings)
    edited = profile.model_copy(update={"decision": profile.decision.model_copy(update={"challenger": "other words"})})
    assert "--speculative-config" not in recommended(edited).settings and len(recommended(edited).settings) == 1


def test_settings_that_the_label_does_not_tell_come_from_the_command():
    settings = {"--compilation-config": {"cudagraph_mode": "FULL", "pass_config": {"fuse_norm_quant": True}}}
    profile = improved(settings)
    found = recommended(profile)
    assert dict(found.settings) == settings
    edited = profile.model_copy(update={"decision": profile.decision.model_copy(update={"challenger": "other words"})})
    assert dict(recommended(edited).settings) == settings


def test_a_profile_that_was_edited_is_launched_as_it_says():
    """The command is what people run: a label that no longer makes it does not count."""
    profile = improved({"--max-num-seqs": 512})
    serve = profile.serve.model_dump()
    serve["args"]["max-num-seqs"] = 256
    serve["command"] = serve["command"].replace("--max-num-seqs 512", "--max-num-seqs 256")
    edited = Profile.model_validate({**profile.model_dump(by_alias=True), "serve": serve})
    assert dict(recommended(edited).settings) == {"--max-num-seqs": 256}


def test_keeping_the_defaults_recommends_nobody_and_knows_its_challenger():
    profile = kept({"attention_backend": "FLASHINFER"})
    assert recommended(profile) is None
    assert challenger(profile) == Candidate({"attention_backend": "FLASHINFER"})
    assert challenger(improved({"enforce_eager": True})) is None


def test_the_committed_profile_of_an_older_advisor():
    profile = read_profile(LLAMA)
    assert recommended(profile) is None
    assert dict(challenger(profile).settings) == {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 48, 64]}


def test_a_challenger_that_cannot_be_read_is_refused():
    profile = kept({"attention_backend": "FLASHINFER"})
    decision = profile.decision.model_copy(update={"challenger": "cudagraph_capture_sizes=1,2,4..999 (77)"})
    with pytest.raises(InputError, match="cannot be read back"):
        challenger(profile.model_copy(update={"decision": decision}))


def test_every_committed_profile_can_be_verified():
    paths = sorted(Path("profiles").glob("*/*.yaml"))
    assert paths
    for path in paths:
        profile = read_profile(path)
        arm = recommended(profile) or challenger(profile)
        assert (arm is None) == (profile.decision.challenger is None), path


def test_without_a_challenger_there_is_none():
    assert challenger(alone()) is None and recommended(alone()) is None
