"""describe.py: the merging of vLLM's answers, against stand-ins for its platform classes. Imports no vLLM."""

from __future__ import annotations

import enum
import os
from collections import namedtuple
from types import SimpleNamespace

import pytest

from advisor.target import describe


class Backend(enum.Enum):
    FLASH_ATTN = "path.Flash"
    FLASHINFER = "path.FlashInfer"
    CPU_ATTN = "path.Cpu"


MEMBERS = list(Backend)
Candidate = namedtuple("Candidate", "backend_class backend priority")


@pytest.fixture(autouse=True)
def same_environment(monkeypatch):
    """What the script sets for FlashInfer is undone."""
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "")
    monkeypatch.delenv("FLASHINFER_CUDA_ARCH_LIST")


class RecentCuda:
    @classmethod
    def get_device_capability(cls):
        return SimpleNamespace(major=9, minor=0)

    @classmethod
    def get_valid_backends(cls, device_capability, attn_selector_config, num_heads=None):
        assert num_heads == 32
        valid = [Candidate(object, Backend.FLASHINFER, 1)]
        return valid, {Backend.FLASH_ATTN: (0, [f"no {attn_selector_config}"])}


class OlderCuda(RecentCuda):
    @classmethod
    def get_valid_backends(cls, device_capability, attn_selector_config):
        return [(Backend.FLASH_ATTN, 0)], {Backend.FLASHINFER: ["too new"]}


def test_cuda_lists_valid_backends_first_and_says_what_it_does_not_consider():
    listed = describe.listed_by_platform(RecentCuda, MEMBERS, "sinks", 32)
    assert listed[:2] == [(Backend.FLASHINFER, []), (Backend.FLASH_ATTN, ["no sinks"])]
    assert listed[2][0] is Backend.CPU_ATTN
    assert "considers" in listed[2][1][0]
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "9.0"


def flash_attention(monkeypatch, packages, supported=(2, 3, 4)):
    interface = SimpleNamespace(
        is_fa_version_supported=lambda version: version in supported,
        fa_version_unsupported_reason=lambda version: f"FA{version} is for another GPU",
    )
    monkeypatch.setattr(describe.importlib, "import_module", lambda name: interface)
    monkeypatch.setattr(describe.importlib.util, "find_spec", lambda name: name in packages or None)
    return describe.flash_attention_refusals()


def test_versions_of_flash_attention_that_cannot_run_are_told(monkeypatch):
    every = ("cutlass", "quack")
    assert flash_attention(monkeypatch, every) == {}
    assert flash_attention(monkeypatch, every, supported=(2, 4)) == {"3": "FA3 is for another GPU"}
    assert flash_attention(monkeypatch, ("quack",)) == {"4": "FA4 needs the Python package cutlass, which is not installed"}
    assert flash_attention(monkeypatch, (), supported=(2, 3)) == {"4": "FA4 is for another GPU"}


def test_a_vllm_without_that_interface_tells_nothing_of_versions(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(describe.importlib, "import_module", missing)
    assert describe.flash_attention_refusals() == {}


def test_the_older_shape_of_the_same_answer():
    listed = describe.listed_by_platform(OlderCuda, MEMBERS[:2], "x", 32)
    assert listed == [(Backend.FLASH_ATTN, []), (Backend.FLASHINFER, ["too new"])]


class Cpu:
    @classmethod
    def get_attn_backend_cls(cls, selected_backend, attn_selector_config, num_heads=None):
        if selected_backend is Backend.FLASHINFER:
            raise ValueError("Selected backend\nis not valid")
        return "path.Cpu"


def test_a_silent_fallback_makes_a_backend_invalid():
    listed = describe.asked_one_by_one(Cpu, MEMBERS, "x", 32)
    assert listed[0] == (Backend.CPU_ATTN, [])
    assert dict(listed)[Backend.FLASH_ATTN] == ["vLLM would silently run CPU_ATTN instead"]
    assert dict(listed)[Backend.FLASHINFER] == ["Selected backend is not valid"]


def test_a_backend_has_to_be_valid_for_every_kind_of_layer():
    full = [(Backend.FLASH_ATTN, []), (Backend.FLASHINFER, [])]
    sliding = [(Backend.FLASHINFER, []), (Backend.FLASH_ATTN, ["sliding window not supported"])]
    assert describe.merged([full, sliding]) == [
        {"name": "FLASHINFER", "reasons": []},
        {"name": "FLASH_ATTN", "reasons": ["sliding window not supported"]},
    ]


def test_reasons_are_told_once():
    answer = [(Backend.FLASH_ATTN, ["why"])]
    assert describe.merged([answer, answer]) == [{"name": "FLASH_ATTN", "reasons": ["why"]}]


def test_pydantics_frame_is_taken_off():
    text = "1 validation error for ModelConfig\n  Value error, too long [type=value_error, input_value=A(), input_type=B]\n"
    text += "    For further information visit https://errors.pydantic.dev/2/v/value_error"
    assert describe.one_line(text) == "too long"
