"""Serve arguments: parsed into one dictionary, merged with a candidate, written out once."""

import json

import pytest

from advisor.engine.options import parse_options, split_serve_args
from advisor.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--max-num-seqs 64", {"--max-num-seqs": "64"}),
        ("--max_num_seqs=64", {"--max-num-seqs": "64"}),
        ("--enforce-eager", {"--enforce-eager": True}),
        ("--no-enforce-eager", {"--enforce-eager": False}),
        ("--max-num-seqs 64 --max-num-seqs 32", {"--max-num-seqs": "32"}),
        ("-O3", {"--optimization-level": "3"}),
        ("-O 1", {"--optimization-level": "1"}),
        ("-O=2", {"--optimization-level": "2"}),
        ("-tp 2", {"--tensor-parallel-size": "2"}),
        ("-cc.mode=NONE -cc.cudagraph_mode=FULL", {"--compilation-config": {"mode": "NONE", "cudagraph_mode": "FULL"}}),
        ("-cc.pass_config.fuse_norm_quant=true", {"--compilation-config": {"pass_config": {"fuse_norm_quant": True}}}),
        ("--compilation-config.cudagraph_capture_sizes [1,2]", {"--compilation-config": {"cudagraph_capture_sizes": [1, 2]}}),
        ("""-cc '{"mode": 3}'""", {"--compilation-config": {"mode": 3}}),
        ("-ac.backend=TRITON_ATTN", {"--attention-config": {"backend": "TRITON_ATTN"}}),
        ("--cudagraph-capture-sizes 1 2 4", {"--compilation-config": {"cudagraph_capture_sizes": [1, 2, 4]}}),
        ("--max-cudagraph-capture-size 256", {"--compilation-config": {"max_cudagraph_capture_size": 256}}),
        ("--swap-space -1", {"--swap-space": "-1"}),
        ("""--speculative-config '{"method": "ngram"}'""", {"--speculative-config": '{"method": "ngram"}'}),
    ],
)
def test_spellings_become_one_dictionary(text, expected):
    assert parse_options(split_serve_args(text)).values == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("""-cc '{"mode": 3}' -cc.cudagraph_mode=FULL""", "'-cc.cudagraph_mode' at word 3 mixes two spellings"),
        ("-cc.mode=NONE --compilation-config.cudagraph_mode FULL", "at word 2 mixes two spellings"),
        ("my-model --enforce-eager", "'my-model' at word 1 is not an option"),
        ("--compilation-config O1", "at word 1 is not JSON"),
        ("--compilation-config 3", "must be a JSON object, found 3"),
        ("--cudagraph-capture-sizes 1,2,4", "whole numbers separated by spaces"),
        ("-cc.cudagraph_capture_sizes=[1] --cudagraph-capture-sizes 1", "both set cudagraph_capture_sizes"),
        ("--x 'open", "cannot be split into words"),
        ('--speculative-config {"method":"ngram","n":4}', "'{method:ngram,n:4}' is JSON that lost its quotes"),
        ('--speculative-config={"method": "ngram"}', "'--speculative-config={method:' is JSON that lost its quotes"),
    ],
)
def test_mistakes_name_the_token(text, part):
    with pytest.raises(InputError) as caught:
        parse_options(split_serve_args(text))
    assert part in caught.value.problem


def test_changes_merge_into_one_compilation_config():
    options = parse_options(split_serve_args("--max-num-seqs 8 -cc.mode=NONE"))
    changed = options.with_changes({"--compilation-config": {"cudagraph_mode": "FULL"}, "--enforce-eager": None})
    argv = changed.argv()
    assert argv.count("--compilation-config") == 1
    assert json.loads(argv[argv.index("--compilation-config") + 1]) == {"mode": "NONE", "cudagraph_mode": "FULL"}
    assert argv[:2] == ["--max-num-seqs", "8"]


def test_argv_is_parsed_back_to_the_same_options():
    options = parse_options(split_serve_args("--a b --c --no-d --e 1 2 -cc.x.y=3"))
    assert parse_options(options.argv()).values == options.values


def test_dotted_keys_of_the_level_option_are_keys_of_the_compilation_config():
    """`-O.key`, which vLLM reads as `-cc.key` until 0.12: beside JSON of our own one of the two would be lost."""
    assert parse_options(["-O.cudagraph_mode=FULL", "-O.mode", "3"]).values == {
        "--compilation-config": {"cudagraph_mode": "FULL", "mode": 3}
    }
    assert parse_options(["-O", "3", "-dcp", "2"]).values == {
        "--optimization-level": "3", "--decode-context-parallel-size": "2",
    }  # fmt: skip
    with pytest.raises(InputError, match="mixes two spellings"):
        parse_options(["-O.mode=3", "--compilation-config", "{}"])
