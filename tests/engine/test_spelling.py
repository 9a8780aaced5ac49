"""Serving decisions in the words of each vLLM version."""

import json

import pytest
import yaml

from advisor.engine.reading.option_tables import choices, defaults, env_status, key_status, option_status, unabbreviated
from advisor.engine.versions import RELEASES, version_text
from advisor.engine.writing.spelling import has_one_compilation_argument, spell
from advisor.engine.writing.spelling_files import kubernetes_args, kubernetes_container, vllm_config_yaml
from advisor.errors import InputError
from tests.engine.recorded_parser import objections, table, versions
from tests.engine.spelling_cases import VALUES, expressible, mixtures

OPTIONS = {version: table(version) for version in versions()}


def test_every_release_that_the_rules_know_is_recorded():
    assert versions() == [version_text(release) for release in RELEASES]


@pytest.mark.parametrize("release", RELEASES, ids=version_text)
def test_every_rendering_is_accepted_by_the_recorded_parser(release):
    recorded = OPTIONS[version_text(release)]
    for settings in mixtures(release):
        try:
            spelled = spell(settings, release)
        except InputError:
            assert len(settings) > 1  # alone, each of them has words
            continue
        assert objections(spelled.argv(), recorded) == [], settings
        assert has_one_compilation_argument(spelled.argv())
        assert set(spelled.env) <= set(recorded["env"])


def test_the_recorded_parser_objects_to_what_vllm_objects_to():
    """The check above is worth something: words that the releases' parsers refused when run are refused here."""
    new, old = OPTIONS["0.33.0"], OPTIONS["0.10.0"]
    assert objections(["--cuda-graph-sizes", "8"], new) == ["unknown option --cuda-graph-sizes"]
    assert objections(["--cudagraph-capture-sizes", "8"], old) == ["unknown option --cudagraph-capture-sizes"]
    assert objections(["--enforce-eager", "false"], new)
    assert objections(["--max-num-seqs", "many"], new)
    assert objections(["--cudagraph-capture-sizes", "1,2"], new)
    assert objections(["--kv-cache-dtype", "nvfp4"], old)
    assert objections(["--compilation-config", '{"level": 3}'], new)
    assert objections(["--compilation-config", '{"pass_config": {"enable_noop": true}}'], new)
    assert objections(["--compilation-config", "'{}'"], new)


@pytest.mark.parametrize(
    ("version", "settings", "argv", "env"),
    [
        ((0, 9, 0), {"attention_backend": "TRITON_ATTN"}, "", {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN_VLLM_V1"}),
        ((0, 11, 0), {"attention_backend": "TRITON_ATTN"}, "", {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}),
        ((0, 13, 0), {"attention_backend": "TRITON_ATTN"}, "--attention-backend TRITON_ATTN", {}),
        ((0, 12, 0), {"flash_attention_version": 3}, "", {"VLLM_FLASH_ATTN_VERSION": "3"}),
        ((0, 17, 1), {"flash_attention_version": 4}, '--attention-config {"flash_attn_version":4}', {}),
        ((0, 10, 0), {"cudagraph_mode": "FULL"}, '--compilation-config {"use_cudagraph":true,"full_cuda_graph":true}', {}),
        ((0, 10, 2), {"cudagraph_mode": "full"}, '--compilation-config {"cudagraph_mode":"FULL"}', {}),
        ((0, 11, 0), {"compilation_mode": "NONE"}, '--compilation-config {"level":0}', {}),
        ((0, 11, 2), {"compilation_mode": 0}, '--compilation-config {"mode":"NONE"}', {}),
        ((0, 11, 0), {"max_cudagraph_capture_size": 64}, "--cuda-graph-sizes 64", {}),
        ((0, 11, 2), {"--max-cudagraph-capture-size": "64"}, '--compilation-config {"max_cudagraph_capture_size":64}', {}),
        ((0, 9, 0), {"cudagraph_capture_sizes": (8,)}, '--compilation-config {"cudagraph_capture_sizes":[8]}', {}),
        ((0, 17, 1), {"cascade_attention": False}, "--disable-cascade-attn", {}),
        ((0, 31, 0), {"cascade_attention": True}, "--no-disable-cascade-attn", {}),
        ((0, 32, 0), {"cascade_attention": False}, "", {}),
        ((0, 12, 0), {"optimization_level": 1}, "--optimization-level 1", {}),
        ((0, 16, 0), {"performance_mode": "balanced"}, "", {}),
        ((0, 33, 0), {"prefix_caching": False}, "--no-enable-prefix-caching", {}),
        ((0, 12, 0), {"--compilation-config": {"pass_config": {"enable_fusion": True}}},
         '--compilation-config {"pass_config":{"fuse_norm_quant":true,"fuse_act_quant":true}}', {}),
        ((0, 11, 2), {"--compilation-config": {"pass_config": {"fuse_attn_quant": True}}},
         '--compilation-config {"pass_config":{"enable_attn_fusion":true}}', {}),
        ((0, 26, 0), {"VLLM_X": 1, "enforce_eager": None}, "", {"VLLM_X": "1"}),
    ],
)  # fmt: skip
def test_each_version_has_its_own_words(version, settings, argv, env):
    spelled = spell(settings, version)
    assert (" ".join(spelled.argv()), spelled.env) == (argv, env)


@pytest.mark.parametrize(
    ("version", "settings", "sentence"),
    [
        ((0, 10, 0), {"cudagraph_mode": "FULL_DECODE_ONLY"}, "decode-only full graphs need 0.10.2 or newer"),
        ((0, 9, 0), {"cudagraph_mode": "NONE"}, "no graphs need 0.9.2 or newer"),
        ((0, 10, 0), {"compilation_mode": "NONE"}, "only --enforce-eager"),
        ((0, 11, 2), {"optimization_level": 2}, "optimization levels need 0.12.0 or newer"),
        ((0, 16, 0), {"performance_mode": "throughput"}, "performance modes need 0.17.1 or newer"),
        ((0, 16, 0), {"flash_attention_version": 4}, "FlashAttention 4 needs 0.17.1 or newer"),
        ((0, 32, 0), {"cascade_attention": True}, "cascade attention was removed in 0.32.0"),
        ((0, 9, 2), {"async_scheduling": True}, "asynchronous scheduling needs 0.10.0 or newer"),
        ((0, 9, 0), {"attention_backend": "FLEX_ATTENTION"}, "does not exist there"),
        ((0, 33, 0), {"attention_backend": "XFORMERS"}, "no attention backend XFORMERS"),
        ((0, 13, 0), {"kv_cache_dtype": "nvfp4"}, "it takes auto"),
        ((0, 13, 0), {"--moe-backend": "triton"}, "it needs 0.17.1 or newer"),
        ((0, 13, 0), {"--cuda-graph-sizes": 8}, "removed in 0.13.0; instead: --cudagraph-capture-sizes"),
        ((0, 18, 1), {"--compilation-config": {"level": 3}}, "removed in 0.18.1 (first seen); instead: mode"),
        ((0, 33, 0), {"--compilation-config": {"bogus": 3}}, "no release read has it"),
        ((0, 33, 0), {"--compilation-config": {"pass_config": {"enable_sp": True}}}, "removed in 0.32.0"),
        ((0, 33, 0), {"--enforce-eager": "true"}, "is not known"),
        ((0, 33, 0), {"--enable-chunked-prefill": "yes"}, "takes no value"),
        ((0, 33, 0), {"--headless": False}, "no --no-headless"),
        ((0, 33, 0), {"cudagraph_mode": "SOME"}, "is not known"),
        ((0, 12, 0), {"cudagraph_mode": "FULL", "compilation_mode": "NONE"}, "full graphs without it need 0.13.0 or newer"),
        ((0, 33, 0), {"cuda_graphs": True}, "is no setting"),
        ((0, 33, 0), {"enforce_eager": True, "--enforce-eager": False}, "is given twice"),
        ((0, 33, 0), {"cudagraph_mode": "NONE", "--compilation-config": {"cudagraph_mode": "FULL"}}, "is given twice"),
        ((0, 8, 5), {}, "too old: 0.9.0 or newer"),
    ],
)  # fmt: skip
def test_what_a_version_cannot_express_is_refused_by_name(version, settings, sentence):
    with pytest.raises(InputError) as caught:
        spell(settings, version)
    assert sentence in caught.value.problem


def test_refusals_name_the_version_and_the_setting():
    for release in RELEASES:
        said, refused = expressible(release)
        assert len(said) + len(refused) == sum(map(len, VALUES.values()))
        assert all(version_text(release) in problem for problem in refused)
    assert not expressible(RELEASES[-1])[1] or "cascade" in expressible(RELEASES[-1])[1][0]


def test_everything_about_compilation_is_one_argument():
    spelled = spell(
        {
            "--compilation-config": {"custom_ops": ["none"]},
            "cudagraph_mode": "NONE",
            "--cudagraph-capture-sizes": ["1", "2"],
            "compilation_mode": "NONE",
        },
        (0, 26, 0),
    )
    option, value = spelled.argv()
    assert option == "--compilation-config"
    assert json.loads(value) == {
        "custom_ops": ["none"], "cudagraph_mode": "NONE", "cudagraph_capture_sizes": [1, 2], "mode": "NONE"
    }  # fmt: skip
    assert not has_one_compilation_argument(["--compilation-config", "{}", "-cc.mode=NONE"])
    assert not has_one_compilation_argument(["-O.level=3", "--compilation-config", "{}"])
    assert has_one_compilation_argument(["-O3", "--compilation-config", "{}"])


def test_unknown_builds_may_have_unknown_words():
    assert spell({"--of-a-plug-in": 1, "attention_backend": "NEW"}, (0, 40, 0)).argv() == [
        "--of-a-plug-in", "1", "--attention-backend", "NEW"
    ]  # fmt: skip
    assert spell({"--moe-backend": "triton"}, (0, 13, 0), check=False).argv() == ["--moe-backend", "triton"]


# ---------------------------------------------------------------- files


def test_a_config_file_that_every_reader_understands():
    settings = {"cudagraph_mode": "FULL", "prefix_caching": False, "--max-num-seqs": 8, "enforce_eager": True}
    old = yaml.safe_load(vllm_config_yaml("m", spell(settings, (0, 15, 1)).options, (0, 15, 1)))
    assert old["compilation-config"] == '{"cudagraph_mode":"FULL"}'
    assert old["no-enable-prefix-caching"] is True and "enable-prefix-caching" not in old
    new = yaml.safe_load(vllm_config_yaml("m", spell(settings, (0, 16, 0)).options, (0, 16, 0)))
    assert new["compilation-config"] == {"cudagraph_mode": "FULL"}
    assert (new["model"], new["max-num-seqs"], new["enforce-eager"]) == ("m", 8, True)


def test_lists_in_a_config_file_need_a_reader_that_takes_them():
    names = spell({"--served-model-name": ["a", "b"]}, (0, 10, 0)).options
    with pytest.raises(InputError, match=r"reads no lists .*--served-model-name"):
        vllm_config_yaml("m", names, (0, 10, 0))
    assert yaml.safe_load(vllm_config_yaml("m", names, (0, 10, 2)))["served-model-name"] == ["a", "b"]


def test_kubernetes_args_hold_no_shell_quotes():
    spelled = spell({"cudagraph_mode": "FULL", "attention_backend": "FLASHINFER"}, (0, 12, 0))
    assert kubernetes_args("m", spelled) == ["m", "--compilation-config", '{"cudagraph_mode":"FULL"}']
    container = kubernetes_container("m", spelled)
    assert container["command"] == ["vllm", "serve"]
    assert container["env"] == [{"name": "VLLM_ATTENTION_BACKEND", "value": "FLASHINFER"}]


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("name", "version", "state", "changed", "renamed"),
    [
        ("--cuda-graph-sizes", (0, 12, 0), "exists", None, None),
        ("--cuda_graph_sizes", (0, 13, 0), "renamed", (0, 13, 0), "--cudagraph-capture-sizes"),
        ("--swap-space", (0, 26, 0), "removed", (0, 18, 1), None),
        ("--performance-mode", (0, 16, 0), "added", (0, 17, 1), None),
        ("--max-num-seqs", (0, 26, 7), "exists", None, None),
        ("--max-nmu-seqs", (0, 26, 0), "unknown", None, None),
        ("-cc", (0, 12, 0), "exists", None, None),
        ("-ac", (0, 12, 0), "added", (0, 13, 0), None),
    ],
)
def test_status_of_an_option(name, version, state, changed, renamed):
    status = option_status(name, version)
    assert (status.state, status.changed, status.renamed_to) == (state, changed, renamed)


def test_status_of_keys_and_variables():
    assert key_status("--compilation-config", "level", (0, 17, 1)).exists
    assert key_status("--compilation-config", "level", (0, 18, 1)).renamed_to == "mode"
    assert key_status("--compilation-config", "pass_config.enable_sp", (0, 32, 0)).state == "removed"
    assert env_status("VLLM_ATTENTION_BACKEND", (0, 14, 1)).exists
    assert env_status("VLLM_ATTENTION_BACKEND", (0, 15, 1)).changed == (0, 15, 1)


def test_other_questions_to_the_tables():
    assert option_status("--no-enforce-eager", (0, 9, 0)).option == "--enforce-eager"
    assert option_status("--compilation-config", (0, 9, 0)).kind == "json"
    assert unabbreviated("--max-num-se", (0, 26, 0)) == ("--max-num-seqs",)
    assert "fp8" in choices("--kv-cache-dtype", (0, 9, 0)) and choices("--max-num-seqs", (0, 9, 0)) == ()
    assert [(d.since, d.value) for d in defaults("--gpu-memory-utilization")] == [((0, 9, 0), 0.9), ((0, 20, 2), 0.92)]
