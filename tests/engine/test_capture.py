"""The capture list and its coverage: the vectors of the facts, each rule's finding, and what a suggestion promises."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from advisor.engine.capture import CaptureRequest, capture_list, coverage, with_model_default
from advisor.engine.versions import RELEASES, version_text
from tools.record_capture import filled, possible, random_case, request_of

LATE = [version_text(version) for version in RELEASES if version >= (0, 11, 2)]
EARLY = [version_text(version) for version in RELEASES if version < (0, 11, 2)]


def ask(version: str, **settings) -> CaptureRequest:
    settings.setdefault("max_num_seqs", 256)
    settings.setdefault("max_num_batched_tokens", 8192)
    return CaptureRequest(tuple(map(int, version.split("."))), **settings)


def sizes_of(version: str, **settings) -> tuple[int, ...]:
    return capture_list(ask(version, **settings)).sizes


def codes(request: CaptureRequest) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in capture_list(request).findings]


def covered(request: CaptureRequest):
    return coverage(capture_list(request).sizes, request)


# ---------------------------------------------------------------- the list


@pytest.mark.parametrize(
    ("version", "settings", "count", "last"),
    [
        ("0.9.0", {"max_num_seqs": 16}, 67, 512),
        ("0.10.0", {"max_num_seqs": 16}, 7, 32),
        ("0.10.2", {}, 67, 512),
        ("0.11.2", {}, 51, 512),
        ("0.33.0", {}, 51, 512),
        ("0.16.0", {"max_num_seqs": 64, "performance_mode": "interactivity"}, 19, 128),
        ("0.17.1", {"max_num_seqs": 64, "performance_mode": "interactivity"}, 44, 128),
        ("0.27.1", {"max_num_seqs": 1024, "compute_capability": (10, 0)}, 51, 512),
        ("0.28.0", {"max_num_seqs": 1024, "compute_capability": (10, 3)}, 83, 1024),
        ("0.28.0", {"max_num_seqs": 1024, "compute_capability": (9, 0)}, 51, 512),
        ("0.12.0", {"max_num_seqs": 32, "speculative_tokens": 3, "cudagraph_mode": "PIECEWISE"}, 11, 64),
        ("0.13.0", {"max_num_seqs": 32, "speculative_tokens": 3, "cudagraph_mode": "PIECEWISE"}, 35, 256),
    ],
)
def test_default_list(version, settings, count, last):
    sizes = sizes_of(version, **settings)
    assert (len(sizes), sizes[-1]) == (count, last)


@pytest.mark.parametrize(
    ("version", "settings", "expected"),
    [
        ("0.29.0", {"max_num_seqs": 12, "max_num_batched_tokens": 2048}, (1, 2, 4, 8, 16, 24)),
        ("0.31.0", {"max_num_seqs": 12, "max_num_batched_tokens": 2048}, (1, 2, 4, 8, 12, 16, 24)),
        ("0.19.1", {"max_num_batched_tokens": 20}, (1, 2, 4, 8, 16)),
        ("0.20.2", {"max_num_batched_tokens": 20}, (1, 2, 4, 8, 16, 20)),
        ("0.26.0", {"sizes": (8, 1, 4096, 8), "max_num_batched_tokens": 2048}, (1, 8)),
        ("0.13.0", {"speculative_tokens": 3, "sizes": (1, 2, 4, 8)}, (4, 8)),
        ("0.13.0", {"speculative_tokens": 3, "sizes": tuple(range(1, 17))}, (4, 8, 12, 16)),
        ("0.13.0", {"speculative_tokens": 3, "sizes": (1, 2, 4)}, (4,)),
        ("0.11.2", {"speculative_tokens": 3, "sizes": (1, 2)}, (1, 2)),
        ("0.31.0", {"tensor_parallel": 4, "sequence_parallel": True, "sizes": (4, 6, 8)}, (4, 8)),
        ("0.32.0", {"tensor_parallel": 4, "sequence_parallel": True, "sizes": (4, 6, 8)}, (4, 6, 8)),
        ("0.26.0", {"cudagraph_mode": "NONE"}, ()),
        ("0.26.0", {"enforce_eager": True}, ()),
    ],
)
def test_list(version, settings, expected):
    assert sizes_of(version, **settings) == expected


@pytest.mark.parametrize(
    ("version", "v2", "mode", "rounds"),
    [
        ("0.11.0", False, "FULL_AND_PIECEWISE", False),
        ("0.11.2", False, "FULL_AND_PIECEWISE", True),
        ("0.19.1", False, "FULL", False),
        ("0.20.2", False, "FULL", True),
        ("0.33.0", False, "PIECEWISE", False),
        ("0.19.1", True, "FULL_AND_PIECEWISE", False),
        ("0.20.2", True, "FULL_AND_PIECEWISE", True),
        ("0.20.2", True, "PIECEWISE", False),
        ("0.24.0", True, "PIECEWISE", True),
        ("0.25.1", True, "FULL_AND_PIECEWISE", False),
    ],
)
def test_which_runner_rounds_for_speculation(version, v2, mode, rounds):
    request = ask(version, speculative_tokens=2, sizes=(3, 4, 9), runner_v2=v2, cudagraph_mode=mode)
    found = capture_list(request)
    assert found.sizes == ((3, 6, 9) if rounds else (3, 4, 9))
    assert found.configured == (3, 4, 9)


def test_list_of_the_compilation_config_and_of_the_flag_differ_until_0_11_0():
    """The flag's numbers are filtered by the batch and may repeat; the config's are taken as they are."""
    settings = {"sizes": (8, 1, 4096, 8), "max_num_batched_tokens": 2048}
    by_flag = capture_list(ask("0.10.2", sizes_by_flag=True, **settings))
    assert (by_flag.configured, by_flag.sizes) == ((1, 8, 8), (1, 8))
    by_config = capture_list(ask("0.10.2", **settings))
    assert by_config.refused
    assert by_config.configured == (1, 8, 4096)
    assert codes(ask("0.10.2", **settings)) == [("error", "capture-size-above-batched-tokens")]


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize("version", LATE)
def test_list_and_maximum_that_disagree_are_refused(version):
    request = ask(version, sizes=(1, 2, 4, 8), maximum=16)
    found = capture_list(request)
    assert found.refused
    assert found.sizes == ()
    assert codes(request) == [("error", "capture-list-and-maximum-disagree")]
    assert "16" in found.findings[0].message
    assert not capture_list(replace(request, maximum=8)).findings


@pytest.mark.parametrize("version", LATE)
@pytest.mark.parametrize(("maximum", "becomes", "count"), [(257, 256, 35), (300, 288, 37)])
def test_maximum_off_the_grid_is_truncated(version, maximum, becomes, count):
    found = capture_list(ask(version, maximum=maximum))
    assert (found.maximum, len(found.sizes)) == (becomes, count)
    assert [finding.code for finding in found.findings] == ["capture-maximum-truncated"]
    assert str(becomes) in found.findings[0].fix


@pytest.mark.parametrize("version", LATE)
def test_sizes_above_the_batch_are_an_error(version):
    request = ask(version, sizes=(8, 1, 4096, 8), max_num_batched_tokens=2048)
    assert codes(request) == [("error", "capture-size-above-batched-tokens")]
    assert "4096" in capture_list(request).findings[0].message
    assert not capture_list(request).refused
    nothing = capture_list(replace(request, sizes=(4096,)))
    assert nothing.sizes == ()
    assert "no graph is left" in nothing.findings[0].message


@pytest.mark.parametrize(
    ("version", "v2", "expected"),
    [
        ("0.11.2", False, [("warning", "capture-list-emptied-by-speculation")]),
        ("0.12.0", False, [("error", "capture-list-emptied-by-speculation")]),
        ("0.33.0", False, [("error", "capture-list-emptied-by-speculation")]),
        ("0.24.0", True, [("error", "capture-list-emptied-by-speculation")]),
        ("0.33.0", True, [("warning", "capture-list-emptied-by-speculation")]),
    ],
)
def test_list_emptied_by_speculation(version, v2, expected):
    request = ask(version, speculative_tokens=3, sizes=(1, 2), runner_v2=v2)
    assert codes(request) == expected
    assert capture_list(request).refused == (expected[0][0] == "error")
    assert covered(request).full_decode_max == 0


def test_speculation_and_sequence_parallelism_need_a_common_multiple():
    settings = {"tensor_parallel": 2, "sequence_parallel": True, "sizes": (1, 2, 4, 8, 16)}
    assert codes(ask("0.26.0", speculative_tokens=2, **settings))[-1] == (
        "error",
        "capture-sizes-without-common-multiple",
    )
    assert sizes_of("0.26.0", speculative_tokens=3, **settings) == (4, 8, 16)
    assert ("warning", "capture-size-not-divisible") in codes(ask("0.26.0", speculative_tokens=3, **settings))


@pytest.mark.parametrize("settings", [{"sizes": ()}, {"maximum": 0}, {"maximum": -1}])
def test_empty_list_and_maximum_below_one_are_refused(settings):
    request = ask("0.26.0", **settings)
    assert capture_list(request).refused
    assert codes(request)[0][1] in {"capture-list-empty", "capture-maximum-below-one"}
    assert not capture_list(replace(request, cudagraph_mode="NONE")).findings


@pytest.mark.parametrize(
    ("version", "breaks"), [("0.11.2", False), ("0.12.0", True), ("0.17.1", True), ("0.18.1", False), ("0.33.0", False)]
)
def test_full_mode_with_speculation_breaks_while_serving(version, breaks):
    request = ask(version, speculative_tokens=2, cudagraph_mode="FULL")
    expected = [("error", "full-graphs-break-with-speculation")] if breaks else []
    assert codes(request) == expected
    assert codes(replace(request, sizes=(3, 6, 300))) == []
    assert codes(replace(request, cudagraph_mode="FULL_AND_PIECEWISE")) == []


def test_a_plain_request_has_no_findings():
    for version in RELEASES:
        assert capture_list(CaptureRequest(version, 256, 8192)).findings == ()
        assert capture_list(CaptureRequest(version, 256, 8192, speculative_tokens=3)).findings == ()


# ---------------------------------------------------------------- coverage


@pytest.mark.parametrize("version", LATE)
def test_1024_sequences_are_covered_to_512_and_256_wholly(version):
    found = covered(ask(version, max_num_seqs=1024))
    assert (found.full_decode_max, found.operating_point) == (512, 1024)
    assert found.uncovered_decode_batches == ((513, 1024),)
    assert found.suggestion == (*sizes_of(version, max_num_seqs=1024), 1024)
    wholly = covered(ask(version, max_num_seqs=256))
    assert (wholly.full_decode_max, wholly.uncovered_decode_batches, wholly.suggestion) == (256, (), None)


def test_batches_below_the_size_above_max_num_seqs():
    """The 16 that would hold 9 to 12 sequences is no FULL decode graph, for 16 sequences cannot be."""
    found = covered(ask("0.26.0", max_num_seqs=12))
    assert found.full_decode_sizes == (1, 2, 4, 8)
    assert found.uncovered_decode_batches == ((9, 12),)
    assert dict(found.padded) == {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 8: 8}
    assert found.suggestion == (1, 2, 4, 8, 12, 16, 24)
    assert covered(ask("0.31.0", max_num_seqs=12)).suggestion is None


def test_everything_is_in_tokens_with_speculation():
    found = covered(ask("0.26.0", max_num_seqs=8, speculative_tokens=3, sizes=(4, 8, 16)))
    assert found.operating_point == 32
    assert found.full_decode_max == 16
    assert found.uncovered_decode_batches == ((20, 32),)
    assert found.padded[12] == 16
    assert found.suggestion == (4, 8, 16, 32)


def test_the_batch_bounds_the_operating_point():
    found = covered(ask("0.26.0", max_num_seqs=256, max_num_batched_tokens=300, speculative_tokens=3))
    assert found.operating_point == 300
    assert found.uncovered_decode_batches == ()


@pytest.mark.parametrize(
    ("version", "uncovered"), [("0.24.0", ()), ("0.25.1", ((3, 6), (12, 12))), ("0.29.0", ((12, 12),))]
)
def test_second_runner_and_a_list_of_other_multiples(version, uncovered):
    """0.25.1 to 0.28.0 choose by the nearest graph of any kind, later ones look for a FULL graph first."""
    request = ask(
        version, max_num_seqs=4, speculative_tokens=2, sizes=(8, 12) if not uncovered else (8, 16), runner_v2=True
    )
    found = covered(request)
    assert found.uncovered_decode_batches == uncovered
    if uncovered:
        assert found.suggestion == tuple(sorted({8, 16, *(last for _, last in uncovered)}))


@pytest.mark.parametrize("mode", ["PIECEWISE", "NONE"])
def test_modes_without_full_decode_cover_nothing_and_no_list_helps(mode):
    found = covered(ask("0.26.0", cudagraph_mode=mode))
    assert (found.full_decode_max, found.full_decode_sizes, found.suggestion) == (0, (), None)
    assert found.uncovered_decode_batches == ((1, 256),)


@pytest.mark.parametrize("version", EARLY[:3])
def test_before_0_10_2_only_full_cuda_graph_covers(version):
    assert covered(ask(version)).full_decode_max == 0
    assert covered(ask(version, cudagraph_mode="FULL")).full_decode_max == 256


def test_full_mode_pads_beyond_max_num_seqs():
    assert covered(ask("0.26.0", max_num_seqs=12, cudagraph_mode="FULL")).padded[12] == 16


def test_suggestion_for_a_refused_list_starts_from_that_list():
    assert covered(ask("0.26.0", max_num_seqs=32, sizes=(1, 2, 4, 8), maximum=16)).suggestion == (1, 2, 4, 8, 32)


@pytest.mark.parametrize("version", RELEASES, ids=version_text)
def test_a_suggestion_covers_all_and_no_addition_is_needless(version):
    draw, suggested = random.Random(7), 0
    for _ in range(150):
        case = filled(random_case(draw))
        request = request_of(case, version)
        if not possible(case, version):
            continue
        found = covered(request)
        if found.suggestion is None:
            continue
        suggested += 1
        asked = replace(request, sizes=found.suggestion, maximum=None, sizes_by_flag=False)
        after = covered(asked)
        assert not capture_list(asked).refused, request
        assert after.uncovered_decode_batches == (), request
        assert after.suggestion is None
        given = capture_list(request).configured
        for size in set(found.suggestion) - set(given) if given else ():  # an unusable list: the default is extended
            less = tuple(other for other in found.suggestion if other != size)
            assert covered(replace(asked, sizes=less)).uncovered_decode_batches, (request, size)
    assert suggested >= (20 if version >= (0, 10, 2) else 1)


# ---------------------------------------------------------------- GPT-OSS


@pytest.mark.parametrize(
    ("version", "last"), [("0.10.0", 512), ("0.10.2", 1024), ("0.11.0", 992), ("0.11.2", 1024), ("0.33.0", 1024)]
)
def test_larger_default_of_gpt_oss(version, last):
    request = with_model_default(ask(version), "GptOssForCausalLM")
    assert capture_list(request).sizes[-1] == last
    assert capture_list(request).findings == ()
    assert with_model_default(ask(version), "LlamaForCausalLM") == ask(version)
    assert with_model_default(ask(version, sizes=(1, 2)), "GptOssForCausalLM") == ask(version, sizes=(1, 2))
