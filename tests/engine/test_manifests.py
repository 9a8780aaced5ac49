"""vLLM config files and Kubernetes manifests, down to the same options as a command line."""

from __future__ import annotations

import pytest

from advisor.engine.reading.manifests import (
    containers,
    parse_yaml,
    pasted_container,
    read_config_file,
    read_container,
    vllm_container,
)
from advisor.errors import InputError

NEW = (0, 26, 0)
DEPLOYMENT = """
apiVersion: v1
kind: Service
metadata: {name: vllm}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      initContainers:
        - {name: fetch, image: busybox, command: [sh, -c, "echo hi"]}
      containers:
        - name: proxy
          image: envoy:1
        - name: server
          image: vllm/vllm-openai:v0.13.0
          %s
          env:
            - {name: SEQS, value: "64"}
            - {name: VLLM_USE_FLASHINFER_SAMPLER, value: "1"}
            - {name: VLLM_SECRET, valueFrom: {secretKeyRef: {name: a, key: b}}}
"""


def server(lines: str):
    return vllm_container(parse_yaml(DEPLOYMENT % lines, "m.yaml"))


def read(lines: str, version: tuple[int, ...] = NEW):
    return read_container(server(lines), version)


def codes(lines: str) -> list[str]:
    return [finding.code for finding in read(lines).findings]


def test_all_containers_are_found_and_the_one_with_vllm_is_taken():
    documents = parse_yaml(DEPLOYMENT % "args: [M]", "m.yaml")
    assert [one.name for one in containers(documents)] == ["fetch", "proxy", "server"]
    assert vllm_container(documents).name == "server"


@pytest.mark.parametrize(
    "lines",
    [
        'args: ["--model", "M", "--max-num-seqs", "64"]',
        'args: ["M", "--max-num-seqs=64"]',
        'args: ["M", "--max-num-seqs", "$(SEQS)"]',
        'command: ["vllm", "serve"]\n          args: ["M", "--max-num-seqs", "64"]',
        'command: ["vllm", "serve", "M", "--max-num-seqs", "64"]',
        'command: [python3, -m, vllm.entrypoints.openai.api_server]\n          args: [--model, M, --max-num-seqs, "64"]',
        'command: ["/bin/sh", "-c"]\n          args: ["vllm serve M --max-num-seqs 64"]',
        'command: ["bash", "-c", "exec vllm serve M --max-num-seqs 64"]',
    ],
)
def test_command_and_args_in_all_their_forms(lines):
    found = read(lines)
    assert (found.model, found.options.values) == ("M", {"--max-num-seqs": "64"})
    assert found.env == {"SEQS": "64", "VLLM_USE_FLASHINFER_SAMPLER": "1"}
    assert [finding.code for finding in found.findings] == ["env-value-not-known"]


def test_version_of_the_image():
    assert pasted_container(server("args: [M]")).version == "0.13.0"


@pytest.mark.parametrize(
    ("lines", "option"),
    [
        ("""args: ["M", "--compilation-config", "'{\\"mode\\": 3}'"]""", "--compilation-config"),
        ("""args: ["M", "--compilation-config='{\\"mode\\": 3}'"]""", "--compilation-config"),
        ("""args: ["M", '-cc=''{"mode": 3}''']""", "-cc"),
    ],
)
def test_shell_quotes_inside_an_argument(lines, option):
    found = read(lines)
    assert [finding.code for finding in found.findings if finding.severity == "error"] == ["quotes-inside-argument"]
    assert found.options.values == {"--compilation-config": {"mode": 3}}  # what it says without them
    assert found.findings[0].message.startswith("args[")


def test_yaml_quotes_are_no_shell_quotes():
    lines = """args: ['M', '--compilation-config', '{"mode": 3}', "--served-model-name", "it's"]"""
    assert codes(lines) == ["env-value-not-known"]
    assert read(lines).options.values["--compilation-config"] == {"mode": 3}


def test_two_words_in_one_argument():
    assert "words-in-one-argument" in codes('args: ["M", "--max-num-seqs 64"]')


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        ("kind: ConfigMap\ndata: {}", None, "no container of the manifest runs vLLM"),
        (DEPLOYMENT % "args: [M]", "other", "is called other; it has: fetch, proxy, server"),
        (
            DEPLOYMENT.replace("envoy:1", "vllm/x") % "args: [M]",
            None,
            "2 containers of the manifest run vLLM: proxy, server",
        ),
        (DEPLOYMENT % "args: [M, 8]", None, "args[1] is 8, and Kubernetes takes only text"),
        (DEPLOYMENT % "args: --model M", None, "args is no list"),
        ("a: [1", None, "m.yaml, line"),
    ],
)
def test_manifests_that_cannot_be_used(text, name, part):
    with pytest.raises(InputError) as caught:
        vllm_container(parse_yaml(text, "m.yaml"), name)
    assert part in caught.value.problem


def test_kserve_predictor():
    text = """
kind: InferenceService
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      image: vllm/vllm-openai:v0.12.0
      args: ["--max-num-seqs", "8"]
"""
    assert read_container(vllm_container(parse_yaml(text, "m.yaml")), NEW).options.values == {"--max-num-seqs": "8"}


def test_config_file_alone():
    found = read_config_file({"model": "M", "max-num-seqs": 8, "compilation-config": {"mode": 3}}, NEW)
    assert found.model == "M"
    assert found.options.values == {"--max-num-seqs": "8", "--compilation-config": {"mode": 3}}
    assert set(found.origins.values()) == {"config-file"}
    assert not found.findings


def test_config_file_that_names_no_model():
    assert [finding.code for finding in read_config_file({"seed": 1}, NEW).findings] == ["model-not-given"]


def test_config_file_that_is_no_mapping():
    with pytest.raises(InputError, match="holds no mapping"):
        read_config_file(["--max-num-seqs"], NEW)


def test_a_shell_in_the_container_sees_its_variables():
    text = "set -e; echo starting\\nexec vllm serve m/$SEQS --max-num-seqs ${SEQS} --port $PORT"
    found = read(f'command: ["/bin/sh", "-c", "{text}"]')
    assert (found.model, found.options.values, found.unknown) == ("m/64", {"--max-num-seqs": "64"}, {"--port": "$PORT"})
    assert "commands-passed-over" in [finding.code for finding in found.findings]


@pytest.mark.parametrize("entry", ["", "command: [vllm, serve]\n          "])
def test_without_a_shell_a_variable_needs_brackets(entry):
    found = read(f'{entry}args: [m, --max-num-seqs, $SEQS, --seed, "${{SEQS}}", --port, $PORT, --host, $(HOST)]')
    assert found.options.values == {"--max-num-seqs": "64", "--seed": "64"}
    assert found.unknown == {"--port": "$PORT", "--host": "$(HOST)"}
    errors = [finding for finding in found.findings if finding.severity == "error"]
    assert [(one.code, one.fix) for one in errors] == [("variable-without-brackets", "$(SEQS)")] * 2
    assert errors[0].message.startswith("args[2] holds $SEQS: without a shell only $(SEQS) is replaced")
