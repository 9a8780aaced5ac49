"""What is known before the first launch, how near other measurements are, and labels read back."""

import math

import pytest

from advisor.records import BackendFacts, Candidate, EngineFacts, Objective, Workload
from advisor.search.expected_gain import Gains
from advisor.search.labels import candidate_of
from advisor.search.nearness import NEAR, Situation, nearness, size_of
from advisor.search.priors import MEASURED, known_before
from advisor.space.choices import Limits, SettingChoices
from tests.study_help import trial

ENGINE = EngineFacts("py", "3.12", "0.26.0", "2.11.0", "cuda", backends=(BackendFacts("FLASH_ATTN"),))
CPU = EngineFacts("py", "3.12", "0.32.0", "2.13.0", "cpu")
SIZES = "cudagraph_capture_sizes"
OWN = tuple(range(8, 513, 8))
SETTINGS = (
    SettingChoices("enforce_eager", (None, True)),
    SettingChoices("attention_backend", (None, "TRITON_ATTN", "FLEX_ATTENTION")),
    SettingChoices("cudagraph_mode", (None, "FULL", "NONE")),
    SettingChoices(SIZES, (None, (1, 64), (8, 512, 1024))),
    SettingChoices("max_num_seqs", (None, 64, 2048)),
)


def known(concurrency=64, engine=ENGINE, metric="output_tok_s", settings=SETTINGS, limits=None, prompt=1024):
    workload = Workload("w", prompt, 128, 256, concurrency=concurrency)
    limits = limits or Limits(1024, 8192, capture_sizes=OWN)
    points, told = known_before(engine, workload, limits, settings, metric)
    return {point.candidate.key: point for point in points}, told


def test_what_lost_much_is_known_to_lose():
    points, told = known()
    for settings in ({"enforce_eager": True}, {"cudagraph_mode": "NONE"}, {"attention_backend": "FLEX_ATTENTION"}):
        point = points[Candidate(settings).key]
        assert point.value < -0.4 and point.value + 2 * point.sd < 0
    assert not told and Candidate({SIZES: (8, 512, 1024)}).key not in points


def test_what_lost_little_only_says_what_is_tried_later():
    points, _ = known()
    small, large = points[Candidate({"attention_backend": "TRITON_ATTN"}).key], points[Candidate({"enforce_eager": True}).key]
    assert small.hint and -0.1 < small.value < -small.sd / 2 and not large.hint
    gains = Gains([trial(0, {}, 1000.0, phase="baseline")], Objective(), [small, large])
    assert gains.unseen(small.candidate) and not gains.unseen(large.candidate)
    unknown = Candidate({"cudagraph_mode": "FULL"})
    later, sooner = gains.of([small.candidate, unknown])
    assert later < 0.8 * sooner


def test_without_asynchronous_scheduling_something_is_expected_to_be_lost_on_a_gpu():
    settings = (*SETTINGS, SettingChoices("async_scheduling", (None, False)))
    key = Candidate({"async_scheduling": False}).key
    point = known(settings=settings)[0][key]
    assert point.hint and point.value == -point.sd < 0
    assert key not in known()[0] and key not in known(settings=settings, engine=CPU)[0]


def test_the_table_is_that_of_the_evidence():
    from pathlib import Path

    table = (Path(__file__).parents[2] / "docs/evidence/tunes.md").read_text()
    for entry, figure in zip(MEASURED, ("1,672", "2,115", "3,062", "926", "3,021", "3,122"), strict=True):
        row = next(line for line in table.splitlines() if line.startswith(f"| {Candidate(entry.settings).label} |"))
        assert figure in row and entry.ratio == pytest.approx(float(figure.replace(",", "")) / 3231)
        assert entry.source


def test_a_limit_below_the_load_is_expected_to_lose_and_one_that_nothing_reaches_to_do_nothing():
    points, told = known(concurrency=128)
    fewer, more = (points[Candidate({"max_num_seqs": value}).key] for value in (64, 2048))
    assert fewer.value == pytest.approx(math.log(0.5) / 2) and fewer.value + 2 * fewer.sd == pytest.approx(0)
    assert (more.value, more.sd < 0.02, told) == (0.0, True, ())
    assert Candidate({"max_num_seqs": 64}).key not in known(concurrency=64)[0]  # all of them run
    assert Candidate({"max_num_seqs": 64}).key not in known(concurrency=128, metric="tpot_ms.p50")[0]


def test_prompts_that_fit_a_graph_beside_the_batch_make_full_graphs_promising():
    key = Candidate({"cudagraph_mode": "FULL"}).key
    points, told = known(prompt=448)
    assert points[key].value == points[key].sd == 0.05 and len(told) == 1
    assert told[0].startswith("a step with a prompt of 448 tokens and 64 requests fits a graph: cudagraph_mode=FULL")
    without = tuple(item for item in SETTINGS if item.name != "cudagraph_mode")
    for other in (known(prompt=449), known(prompt=448, engine=CPU), known(prompt=448, settings=without), known(None, prompt=448)):
        assert key not in other[0] and not other[1]
    assert key not in known(prompt=448, limits=Limits(1024, 8192))[0]  # what vLLM captures by itself is not known


def test_above_the_largest_graph_larger_lists_come_first_and_a_person_is_told():
    points, told = known(concurrency=1000)
    point = points[Candidate({SIZES: (8, 512, 1024)}).key]
    assert 0 < point.value < math.log(3231 / 2115) and point.sd >= point.value  # it may come to nothing
    assert points[Candidate({SIZES: (1, 64)}).key].value == 0  # no graph for this batch either
    assert told == ("1000 requests decode together, and vLLM's own largest graph holds 512: larger capture sizes are tried first",)
    assert not known(concurrency=512)[1]
    assert not known(concurrency=4000, limits=Limits(256, 8192, capture_sizes=OWN))[1]  # max_num_seqs keeps the batch small


def test_more_sequences_than_are_in_flight_change_nothing():
    points, _ = known()
    point = points[Candidate({"max_num_seqs": 2048}).key]
    assert point.value == 0 and point.sd <= 0.01
    assert Candidate({"max_num_seqs": 64}).key not in points


def test_a_processor_has_the_scheduler_and_nothing_that_was_measured_on_a_gpu():
    on_cpu, told = known(concurrency=640, engine=CPU)
    assert set(on_cpu) == {Candidate({"max_num_seqs": value}).key for value in (64, 2048)} and told == ()
    assert on_cpu == {key: point for key, point in known(concurrency=640)[0].items() if key in on_cpu}


def test_nothing_is_known_of_latencies_and_values_that_are_not_searched():
    assert known(metric="ttft_ms.p99") == known(engine=CPU, metric="ttft_ms.p99") == ({}, ())
    points, _ = known(settings=SETTINGS[:1])
    assert list(points) == [Candidate({"enforce_eager": True}).key]


# ---------------------------------------------------------------- nearness

HERE = Situation("Llama-3.1-8B", "abc", "LlamaForCausalLM", "h200", "9.0", 1024, 128, 64, None, "0.26.0")


def near(**changes):
    import dataclasses

    return nearness(HERE, dataclasses.replace(HERE, **changes))


def test_the_same_is_one_and_says_so():
    assert near() == (1.0, ("same model", "same GPU", "same load"))


def test_each_difference_makes_it_less_near_and_large_ones_too_far():
    finetune = near(config_hash="x", model="Mistral-8B")[0]
    assert near(config_hash="x")[1][0] == "same architecture" and 0.8 < finetune < 1
    other = {"config_hash": "x", "model": "Llama-3.2-1B"}
    assert near(**other)[0] < finetune
    assert near(config_hash="x", model="m", architecture="Qwen3ForCausalLM")[0] < NEAR
    assert near(gpu="h100")[0] == pytest.approx(0.7) and near(gpu="l4", capability="8.9")[0] == pytest.approx(0.4)
    assert near(gpu="cpu", capability=None)[0] == 0
    assert near(concurrency=None, rate=4.0)[0] == 0
    assert near(concurrency=128)[0] > near(concurrency=1024)[0]
    assert near(concurrency=1024, input_tokens=4096)[0] < NEAR
    assert near(vllm="0.26.1")[0] == 1 and near(vllm="0.33.0")[0] == pytest.approx(0.9)


def test_families_and_sizes_are_read_from_names():
    assert size_of("Llama-3.1-8B-Instruct") == 8 and size_of("Qwen3-0.6B") == 0.6 and size_of("gpt-oss") is None
    same_family = near(config_hash="x", architecture="Llama4ForCausalLM")
    assert same_family[1][0] == "same family"
    experts = near(config_hash="x", architecture="Qwen3MoeForCausalLM")
    assert "same family" not in experts[1]


# ---------------------------------------------------------------- labels

NAMED = (
    Candidate({"enforce_eager": True}),
    Candidate({"attention_backend": "TRITON_ATTN", SIZES: (1, 64)}),
    Candidate({"cudagraph_mode": "FULL", SIZES: OWN}),
    Candidate({"async_scheduling": False, "max_num_seqs": 2048}),
    Candidate({"VLLM_CPU_OMP_THREADS_BIND": "0-7", "--seed": 3}),
    Candidate(),
)


@pytest.mark.parametrize("candidate", NAMED, ids=lambda item: item.label)
def test_a_label_is_read_back(candidate):
    settings = (*SETTINGS[:3], SettingChoices(SIZES, (None, (1, 64), OWN)))
    assert candidate_of(candidate.label, settings).key == candidate.key


def test_a_list_that_this_space_does_not_have_is_a_value_of_its_own():
    found = candidate_of("cudagraph_mode=FULL cudagraph_capture_sizes=1,2,4..1024 (11)", SETTINGS)
    assert found.settings == {"cudagraph_mode": "FULL", SIZES: "1,2,4..1024 (11)"}
    assert candidate_of("what is = this", ()) is None
