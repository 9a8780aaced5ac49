from __future__ import annotations

from advisor.launch.redact import redact_argv, redact_env


def test_secrets_of_options_are_hidden_in_both_spellings() -> None:
    argv = ["vllm", "serve", "m", "--api-key", "sk-1", "--hf-token=hf_2", "--max-num-batched-tokens", "8192"]
    assert redact_argv(argv) == [*argv[:4], "***", "--hf-token=***", *argv[6:]]


def test_amounts_and_parsers_are_no_secrets() -> None:
    argv = ["--num-speculative-tokens=3", "--max-num-batched-tokens", "64", "--tokenizer", "t"]
    assert redact_argv(argv) == argv


def test_secrets_of_the_environment_are_hidden() -> None:
    env = {"HF_TOKEN": "hf_1", "AWS_SECRET": "x", "OPENAI_API_KEY": "y", "VLLM_CPU_KVCACHE_SPACE": "1"}
    assert redact_env(env) == {**dict.fromkeys(list(env)[:3], "***"), "VLLM_CPU_KVCACHE_SPACE": "1"}
