"""A candidate in vLLM's spelling."""

import json

import pytest

from advisor.engine.options import parse_options
from advisor.engine.render import check_version, fixed_by, is_setting, serve_command
from advisor.errors import EnvironmentMismatch, InputError
from advisor.records import Candidate


def command(settings, serve_args=(), env=None):
    return serve_command("py", "m", tuple(serve_args), env or {}, Candidate(settings))


def test_baseline_is_the_persons_words_and_nothing_else():
    words = ("--compilation-config.mode", "NONE", "--max_num_seqs=8")
    assert command({}, words).argv == ("py", "-m", "vllm.entrypoints.cli.main", "serve", "m", *words)
    assert command({}).argv[4:] == ("m",)


def test_each_setting_has_its_place():
    rendered = command(
        {
            "attention_backend": "TRITON_ATTN",
            "compilation_mode": "NONE",
            "cudagraph_mode": "FULL",
            "cudagraph_capture_sizes": (1, 2),
            "optimization_level": 1,
            "--max-num-seqs": 64,
            "--async-scheduling": False,
            "VLLM_X": 3,
        },
        env={"A": "b"},
    )
    tail = list(rendered.argv[5:])
    assert tail[:2] == ["--attention-backend", "TRITON_ATTN"]
    config = json.loads(tail[tail.index("--compilation-config") + 1])
    assert config == {"mode": "NONE", "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2]}
    assert "--no-async-scheduling" in tail and tail[tail.index("--max-num-seqs") + 1] == "64"
    assert rendered.env == {"A": "b", "VLLM_X": "3"}


def test_eager_is_a_bare_switch():
    assert command({"enforce_eager": True}, ("--enforce-eager",)).argv[5:] == ("--enforce-eager",)


@pytest.mark.parametrize(
    ("words", "env", "fixed"),
    [
        (["--attention-backend", "X"], {}, {"attention_backend", "--attention-backend"}),
        (["-ac.backend=X"], {}, {"attention_backend", "--attention-config"}),
        (
            ["--max-cudagraph-capture-size", "8"],
            {},
            {"cudagraph_capture_sizes", "max_cudagraph_capture_size", "--compilation-config"},
        ),
        (["-cc.mode=NONE"], {}, {"compilation_mode", "--compilation-config"}),
        ([], {"VLLM_A": "1"}, {"VLLM_A"}),
    ],
)
def test_what_the_person_gave_is_not_searched(words, env, fixed):
    assert fixed_by(parse_options(words), env) == fixed


def test_old_versions_are_refused_by_name():
    check_version("0.26.0")
    check_version("0.13.0+cu130")
    check_version("0.9.0")
    with pytest.raises(EnvironmentMismatch, match=r"vLLM 0\.8\.5 is too old: 0\.9\.0"):
        check_version("0.8.5")


def test_an_old_version_gets_its_own_spelling():
    settings = {"attention_backend": "TRITON_ATTN", "compilation_mode": "NONE"}
    rendered = serve_command("py", "m", ("-O3", "--max-num-seqs", "8"), {}, Candidate(settings), "0.10.2")
    assert rendered.argv[5:] == ("--max-num-seqs", "8", "--compilation-config", '{"level":0}')
    assert rendered.env == {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN_VLLM_V1"}
    assert "attention_backend" in fixed_by(parse_options([]), {"VLLM_ATTENTION_BACKEND": "X"}, "0.12.0")
    assert "attention_backend" not in fixed_by(parse_options([]), {"VLLM_ATTENTION_BACKEND": "X"}, "0.26.0")


def test_setting_names():
    assert all(is_setting(name) for name in ("enforce_eager", "--block-size", "VLLM_CPU_KVCACHE_SPACE"))
    assert not any(is_setting(name) for name in ("enforce-eager", "attention", "vllm_x"))


def test_fusion_passes_share_one_dictionary_with_the_persons_own():
    words = ("-cc.pass_config.eliminate_noops=true", "-cc.cudagraph_mode=FULL")
    tail = command({"fuse_norm_quant": True, "fuse_qk_norm_rope": True, "compile_sizes": (8,)}, words).argv[5:]
    assert json.loads(tail[tail.index("--compilation-config") + 1]) == {
        "pass_config": {"eliminate_noops": True, "fuse_norm_quant": True, "enable_qk_norm_rope_fusion": True},
        "cudagraph_mode": "FULL",
        "compile_sizes": [8],
    }


@pytest.mark.parametrize(
    ("words", "fixed"),
    [
        (["-cc.pass_config.enable_attn_fusion=true"], "fuse_attn_quant"),  # the name until 0.12
        (["-cc.pass_config.fuse_attn_quant=true"], "fuse_attn_quant"),
        (["--block-size", "64"], "block_size"),
        (["-cc.use_inductor_graph_partition=true"], "inductor_graph_partition"),
    ],
)
def test_nested_keys_fix_their_setting(words, fixed):
    assert fixed in fixed_by(parse_options(words), {})


def test_a_level_that_drops_the_persons_json_is_refused_by_name():
    """Before 0.12 `-O3` counts as a dotted key, which replaces JSON: the default would be another one."""
    both = ("-O3", "--compilation-config", '{"cudagraph_capture_sizes": [1, 2]}')
    eager = Candidate({"enforce_eager": True})
    with pytest.raises(InputError, match=r"vLLM 0\.10\.2 reads -O3 as a key of .* and drops its JSON"):
        serve_command("py", "m", both, {}, eager, "0.10.2")
    assert "--optimization-level" in serve_command("py", "m", both, {}, eager, "0.12.0").argv
    assert "--enforce-eager" in serve_command("py", "m", ("-O3", "--cudagraph-capture-sizes", "1"), {}, eager, "0.11.2").argv
