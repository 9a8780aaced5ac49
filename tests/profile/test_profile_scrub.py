"""What counts as a secret and as this machine's own."""

from __future__ import annotations

import json

import pytest

from advisor.serving_profile.scrub import scrubber, secret_option, secret_variable


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MYAPIKEY", "my_token"]
)
def test_secret_variables(name):
    assert secret_variable(name, "value")


@pytest.mark.parametrize(
    ("name", "value"), [("TOKENIZERS_PARALLELISM", "false"), ("X_MAX_TOKENS", "4096"), ("VLLM_LOGGING_LEVEL", "INFO")]
)
def test_ordinary_variables(name, value):
    assert not secret_variable(name, value)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("--api-key", True),
        ("--hf_token", True),
        ("--long-prefill-token-threshold", False),
        ("--tokenizer", False),
        ("--max-num-batched-tokens", False),
        ("num_speculative_tokens", False),
    ],
)
def test_options(name, secret):
    assert secret_option(name) is secret


def clean(words=(), env=None):
    return scrubber(("/data/m/Llama", "Llama"), [env or {}], [words])


def test_secret_words_in_every_spelling():
    words = [
        "--api-key",
        "one",
        "two",
        "--hf-token=abcdefgh",
        "--x",
        '{"store":{"password":"pä55"},"n":1}',
        "--y",
        "see abcdefgh",
    ]
    found = clean(words).words(words)
    assert found[:4] == ["--api-key", "${API_KEY}", "${API_KEY}", "--hf-token=${HF_TOKEN}"]
    assert json.loads(found[5].replace("${", "$ {")) == {"store": {"password": "$ {PASSWORD}"}, "n": 1}
    assert found[-1] == "see ${HF_TOKEN}"


def test_a_short_secret_does_not_garble_other_text():
    scrub = clean(env={"KEY": "a"})
    assert scrub.text("a banana") == "a banana"
    assert scrub.env({"KEY": "a", "B": "a"}) == {"B": "a", "KEY": "${KEY}"}


def test_paths():
    scrub = clean()
    assert scrub.text('File "/opt/x/lib/a.py", line 3') == 'File "a.py", line 3'
    assert (
        scrub.text("http://127.0.0.1:8000/v1/completions 3/4 and/or")
        == "http://127.0.0.1:8000/v1/completions 3/4 and/or"
    )
    assert scrub.setting("/data/m/Llama") == "Llama"
    assert scrub.setting("/etc/chat/template.jinja") == "/etc/chat/template.jinja"  # the person's own, needed to run
