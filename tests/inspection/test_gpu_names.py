"""GPU names as people write them and as drivers print them."""

from __future__ import annotations

import re

import pytest

from advisor.errors import InputError
from advisor.inspection.gpu_names import KNOWN, matches, slug_of, slug_of_driver_name

WRITTEN = {
    "H100": "h100",
    "h100-sxm": "h100",
    "NVIDIA H100 80GB HBM3": "h100",
    "H100 PCIe": "h100-pcie",
    "h100_nvl": "h100-nvl",
    "H200": "h200",
    "GH200": "gh200",
    "A100": "a100",
    "A100-80GB": "a100-80gb",
    "a100 40 gb": "a100-40gb",
    "A10": "a10",
    "a10g": "a10g",
    "L40S": "l40s",
    "l40": "l40",
    "T4": "t4",
    "V100": "v100",
    "B200": "b200",
    "gb200": "gb200",
    "RTX4090": "rtx4090",
    "RTX 4090": "rtx4090",
    "rtx-4090": "rtx4090",
    "4090": "rtx4090",
    "RTX 4070 Ti SUPER": "rtx4070tisuper",
    "RTX A6000": "rtxa6000",
    "A6000": "rtxa6000",
    "RTX 6000 Ada": "rtx6000ada",
    "RTX PRO 6000": "rtxpro6000",
    "MI300X": "mi300x",
    "mi355x": "mi355x",
    " CPU ": "cpu",
    "auto": "auto",
}
PRINTED = {
    "NVIDIA H200": "h200",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100-32gb",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GeForce RTX 3090 Ti": "rtx3090ti",
    "NVIDIA RTX 6000 Ada Generation": "rtx6000ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtxpro6000",
    "AMD Instinct MI300X OAM": "mi300x",
    "AMD Instinct MI250X / MI250": "mi250x",
    "NVIDIA Quasar X-9 (proto)": "quasar-x-9-proto",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": "a100-sxm4-40gb-mig-1g-5gb",
    "???": "gpu",
}


@pytest.mark.parametrize(("text", "slug"), WRITTEN.items())
def test_names_as_people_write_them(text, slug):
    assert slug_of(text) == slug


@pytest.mark.parametrize(("name", "slug"), PRINTED.items())
def test_names_as_drivers_print_them(name, slug):
    assert slug_of_driver_name(name) == slug


@pytest.mark.parametrize(
    ("text", "nearest"), [("H1000", "H100"), ("rtx409", "RTX 4090"), ("mi300", "MI300X"), ("L40X", "L40S")]
)
def test_unknown_names_get_the_nearest_known_ones(text, nearest):
    with pytest.raises(InputError, match=re.escape(repr(text))) as raised:
        slug_of(text)
    assert nearest in raised.value.hint


def test_a_name_like_no_other_gets_examples():
    with pytest.raises(InputError) as raised:
        slug_of("")
    assert "H100" in raised.value.hint


@pytest.mark.parametrize(
    ("requested", "driver_name", "same"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H100 PCIe", True),
        ("h100-sxm", "NVIDIA H100 80GB HBM3", True),
        ("h100-sxm", "NVIDIA H100 PCIe", False),
        ("h100-pcie", "NVIDIA H100 80GB HBM3", False),
        ("h100 80gb", "NVIDIA H100 PCIe", True),
        ("H100", "NVIDIA H200", False),
        ("A100", "NVIDIA A100-SXM4-40GB", True),
        ("A100-80GB", "NVIDIA A100-SXM4-40GB", False),
        ("H200 141GB", "NVIDIA H200", True),
        ("quasar x-9", "NVIDIA Quasar X-9", True),
        ("rtx 4080", "NVIDIA GeForce RTX 4080 SUPER", False),
    ],
)
def test_a_request_matches_what_it_leaves_open(requested, driver_name, same):
    assert matches(requested, driver_name) is same


def test_every_known_gpu_is_reached_by_what_errors_show():
    assert {known.slug for known in KNOWN} == {slug_of(known.shown) for known in KNOWN}
