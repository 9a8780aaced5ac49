"""From a space to the candidates that are worth a launch."""

from collections import Counter

import pytest

from advisor.engine.render import changes
from advisor.errors import InputError
from advisor.records import Candidate
from advisor.space.candidates import Limits, SettingChoices, build_space, concrete_settings, first_candidates
from advisor.space.spec import load_space

LIMITS = Limits(max_num_seqs=1024, max_num_batched_tokens=8192)


def distinct(candidates):
    """A resolver under which every candidate resolves to itself."""
    return [{"ok": True, "resolved": {"fingerprint": item.key}} for item in candidates]


def built(engine, gpu, chat, fixed=(), resolve=distinct, space="default"):
    settings = concrete_settings(load_space(space), engine, gpu, chat, LIMITS, set(fixed))
    return build_space(settings, engine, resolve)


def test_no_contradictions_are_left(cuda_engine, h200, chat):
    for candidate in built(cuda_engine, h200, chat).candidates:
        settings = candidate.settings
        if settings.get("enforce_eager"):
            assert not {"compilation_mode", "cudagraph_mode", "cudagraph_capture_sizes"} & set(settings)
        if settings.get("compilation_mode") == "NONE":
            assert settings["cudagraph_mode"] in ("FULL", "FULL_DECODE_ONLY")
        if settings.get("cudagraph_mode") == "NONE":
            assert "cudagraph_capture_sizes" not in settings
        assert settings.get("attention_backend") not in ("TURBOQUANT", "FLASH_ATTN")
        assert not (settings.get("attention_backend") == "FLASHINFER" and settings.get("cudagraph_mode") == "FULL"
                    and "compilation_mode" not in settings)  # fmt: skip


def test_keys_are_unique_and_the_baseline_is_not_among_them(cuda_engine, h200, chat):
    candidates = built(cuda_engine, h200, chat).candidates
    assert max(Counter(item.key for item in candidates).values()) == 1
    assert not any(item.is_baseline for item in candidates)


def test_first_candidates_cover_every_value_with_few_overrides(cuda_engine, h200, chat):
    space = built(cuda_engine, h200, chat)
    first = first_candidates(space)
    covered = {(name, str(value)) for item in first for name, value in item.settings.items()}
    possible = {(name, str(value)) for item in space.candidates for name, value in item.settings.items()}
    assert covered == possible
    assert all(item.overrides <= 2 for item in first)
    assert len({name for item in first[:4] for name in item.settings}) >= 4  # settings take turns


def test_fixed_settings_are_left_alone(cuda_engine, h200, chat):
    space = built(cuda_engine, h200, chat, fixed={"attention_backend", "enforce_eager"})
    assert not any({"attention_backend", "enforce_eager"} & set(item.settings) for item in space.candidates)
    assert any("cudagraph_mode" in item.settings for item in space.candidates)


def test_inert_settings_are_dropped_with_the_reason(cuda_engine, cpu_engine, h200, chat):
    reasons = " ".join(item.reason for item in built(cpu_engine, h200, chat).rejections)
    assert "cudagraph_mode is inert: vLLM captures no graphs on a CPU" in reasons
    settings = (SettingChoices("optimization_level", (None, 1, 3)),)
    space = build_space(settings, cuda_engine, distinct)
    assert [item.settings for item in space.candidates] == [{"optimization_level": 1}]
    assert "-O3 equals -O2" in space.rejections[0].reason


def test_nothing_left_to_choose_is_an_error(cuda_engine, h200, chat):
    with pytest.raises(InputError, match="leaves nothing to choose"):
        built(cuda_engine, h200, chat, fixed=set(load_space("default").settings))


def test_what_vllm_refuses_and_what_resolves_alike_is_dropped_with_the_reason(cuda_engine, h200, chat):
    def resolve(candidates):
        answers = []
        for item in candidates:
            if item.settings.get("attention_backend") == "FLASHINFER":
                answers.append({"ok": False, "error": "no FlashInfer here"})
            else:  # backends do not matter to this vLLM
                same = {name: value for name, value in item.settings.items() if name != "attention_backend"}
                answers.append({"ok": True, "resolved": {"fingerprint": Candidate(same).key}})
        return answers

    space = built(cuda_engine, h200, chat, resolve=resolve)
    reasons = Counter(item.reason for item in space.rejections)
    assert reasons["vLLM refuses it: no FlashInfer here"] > 0
    assert reasons["resolves to the same as default"] == 1
    assert not any("attention_backend" in item.settings for item in space.candidates)


def test_environment_counts_in_the_identity(cpu_engine, h200, chat):
    def blind(candidates):
        return [{"ok": True, "resolved": {"fingerprint": "same"}} for _ in candidates]

    space = built(cpu_engine, h200, chat, resolve=blind, space="cpu")
    assert [changes(item)[1] for item in space.candidates] == [{"VLLM_CPU_OMP_THREADS_BIND": "0-0"}]


def test_no_graph_settings_on_a_cpu(cpu_engine, h200, chat):
    space = built(cpu_engine, h200, chat)
    assert {item.label for item in space.candidates} == {"enforce_eager"}


@pytest.mark.parametrize(("sizes", "part"), [([0], "neither a list"), (["a"], "neither"), ("big", "neither"), ([9000], "is above")])
def test_bad_capture_sizes(cuda_engine, h200, chat, tmp_path, sizes, part):
    path = tmp_path / "s.yaml"
    path.write_text(f"schema: advisor.space/1\nname: s\nsettings:\n  cudagraph_capture_sizes: {{values: [{sizes}]}}\n")
    with pytest.raises(InputError, match=part):
        built(cuda_engine, h200, chat, space=str(path))
