"""Service level objectives: the words, which requests comply, and whether a load is below saturation."""

import dataclasses
import json
import random
import subprocess

import pytest

from advisor.errors import InputError
from advisor.measure.client import read_sample
from advisor.measure.saturation import keeps_up, load_note, with_requests
from advisor.measure.slo import breaches, compliance, parse_slo, violation
from advisor.measure.summary import summarise
from advisor.records import Objective, SloLimit, Spread, Telemetry, Workload
from tests.measure.raw_results import WORKLOAD, fail, made, recorded


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft_p99<500ms,tpot_p99<30ms", (SloLimit("ttft_ms", 500, 0.99), SloLimit("tpot_ms", 30, 0.99))),
        (" TTFT.p90 <= 0.5s ", (SloLimit("ttft_ms", 500, 0.9),)),
        ("e2e_p99.9<2s", (SloLimit("e2el_ms", 2000, 0.999),)),
        ("itl_p100<80ms", (SloLimit("itl_ms", 80, 1.0),)),
        ("ttft:500,tpot:30", (SloLimit("ttft_ms", 500, 0.99), SloLimit("tpot_ms", 30, 0.99))),
    ],
)
def test_words(text, limits):
    assert parse_slo(text) == limits


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ttft_p99<500", "needs a unit, ms or s"),
        ("ttft_p99<500us", "needs a unit"),
        ("latency_p99<500ms", "metric 'latency' is not known"),
        ("ttft_p0<500ms", "'p0' is out of range"),
        ("ttft_p101<500ms", "'p101' is out of range"),
        ("ttft_median<500ms", "'median' is out of range"),
        ("tpot_mean<30ms", "a mean is no share of requests"),
        ("ttft>500ms", "is not METRIC<LIMIT"),
        ("ttft<0ms", "more than zero"),
        ("ttft<nan ms", "more than zero"),
        ("ttft<abc ms", "'abc' is not a number"),
        ("", "is not METRIC<LIMIT"),
        ("ttft_p99<500ms,", "term ''"),
        ("ttft_p99<500ms,ttft_p50<100ms", "limits ttft twice"),
    ],
)
def test_mistakes_name_the_term_and_what_to_write(text, part):
    with pytest.raises(InputError) as caught:
        parse_slo(text)
    assert part in caught.value.problem and caught.value.problem.startswith("--slo") and caught.value.hint


def test_labels_read_back():
    limits = parse_slo("ttft_p99<500ms,tpot_p99.9<30.5ms,itl_p50<1s")
    assert parse_slo(",".join(limit.label for limit in limits)) == limits


def judged(raw, text, workload=WORKLOAD):
    slo = parse_slo(text)
    return with_requests(summarise(raw, 0), raw, workload, slo), slo


def test_a_request_must_be_within_every_limit():
    raw = made(requests=10)  # TTFT 200 ms, TPOT 80 ms, one second in all
    raw["ttfts"][0] = 0.6
    raw["itls"][1] = [0.2] * 10
    sample, slo = judged(raw, "ttft_p90<500ms,tpot_p99<100ms")
    assert sample.slo_within == {"ttft_p90<500ms": 0.9, "tpot_p99<100ms": 0.9} and sample.slo_share == 0.8
    assert sample.goodput_requests_s == pytest.approx(8 / raw["duration"])
    assert breaches([sample], slo) == ["tpot_p99<100ms: 90.0% of the requests are within 100 ms"]
    assert violation([sample], slo) == pytest.approx(0.09)


def test_a_limit_holds_at_its_own_value():
    sample, slo = judged(made(), "ttft<200ms,e2el<1000.001ms")
    assert sample.slo_share == 1 and breaches([sample], slo) == [] and violation([sample], slo) == 0


def test_itl_is_the_longest_gap_of_a_request():
    raw = made(requests=4)
    raw["itls"][2][5] = 0.5
    sample, _ = judged(raw, "itl_p100<100ms,tpot_p100<150ms")
    assert sample.slo_within == {"itl_p100<100ms": 0.75, "tpot_p100<150ms": 1.0}


def test_a_failed_request_complies_with_nothing():
    raw = made(requests=4)
    fail(raw, 1)
    sample, slo = judged(raw, "ttft_p75<500ms")
    assert sample.slo_share == 0.75 and breaches([sample], slo) == []


def test_one_token_has_no_tpot_to_miss():
    raw = made(output_tokens=1)
    assert judged(raw, "tpot<1ms")[0].slo_share == 1


def test_shares_of_several_samples_count_requests():
    small, slo = judged(made(requests=2), "ttft_p90<300ms")
    raw = made(requests=8)
    raw["ttfts"] = [0.4, *[0.2] * 7]
    large, _ = judged(raw, "ttft_p90<300ms")
    assert compliance([small, large], slo) == {"ttft_p90<300ms": 0.9} and breaches([small, large], slo) == []
    assert breaches([large], slo) and breaches([dataclasses.replace(large, problems=("bad",))], slo) == []


def test_goodput_is_vllms_own(tmp_path):
    """The figure that `vllm bench serve --goodput ttft:90 tpot:9.2` computes: all limits, `<=`, over the whole duration."""
    raw = recorded("closed_loop")
    rows = zip(raw["ttfts"], raw["latencies"], raw["output_lens"], strict=True)
    good = sum(ttft <= 0.090 and (latency - ttft) / (tokens - 1) <= 0.0092 for ttft, latency, tokens in rows)
    sample, _ = judged(raw, "ttft:90,tpot:9.2")
    assert 0 < good < 24 and sample.goodput_requests_s == pytest.approx(good / raw["duration"])


def test_a_result_file_is_read_with_the_slo(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(made()))
    assert read_sample(path, WORKLOAD, 0, None, slo=parse_slo("ttft<1s")).slo_share == 1
    assert read_sample(path, WORKLOAD, 0, None).slo_share is None


# ---------------------------------------------------------------- saturation

RATE = Workload("r", 100, 11, 64, rate=4.0)


def arrivals(service_s, servers, requests=64, rate=4.0, seed=0):
    """A raw result of Poisson arrivals at a queue with so many servers."""
    rng, now, free, starts, latencies = random.Random(seed), 0.0, [0.0] * servers, [], []
    for _ in range(requests):
        now += rng.expovariate(rate)
        first = min(range(servers), key=free.__getitem__)
        free[first] = max(now, free[first]) + service_s
        starts.append(now)
        latencies.append(free[first] - now)
    raw = made(requests)
    raw |= {"start_times": starts, "latencies": latencies, "ttfts": [x * 0.2 for x in latencies], "duration": max(free)}
    return raw


@pytest.mark.parametrize("seed", range(20))
def test_a_server_that_keeps_up_and_one_that_does_not(seed):
    calm, _ = judged(arrivals(0.5, servers=8, seed=seed), "ttft<1s", RATE)  # bears 16 requests a second
    over, _ = judged(arrivals(0.5, servers=1, seed=seed), "ttft<1s", RATE)  # bears 2
    assert keeps_up([calm], 4.0) is True and keeps_up([over], 4.0) is False
    assert over.in_flight[0] < over.in_flight[1] < over.in_flight[2] < over.in_flight[3]


@pytest.mark.parametrize("seed", range(5))
def test_a_flood_that_loses_some_requests_has_a_queue_all_the_same(seed):
    """As recorded: the last 17 of 200 were sent on connections that the server had just closed."""
    flood = arrivals(0.5, servers=1, seed=seed)
    whole, _ = judged(flood, "ttft<1s", RATE)
    nothing = {"errors": "Server disconnected", "ttfts": 0.0, "itls": [], "latencies": 0.0, "output_lens": 0}
    for lost in (5, 20, 40):
        for name, value in nothing.items():
            flood[name][lost] = value
    some, _ = judged(flood, "ttft<1s", RATE)
    assert (some.requests, some.failed) == (61, 3)
    assert all(0 <= all_of_them - rest < 3 for all_of_them, rest in zip(whole.in_flight, some.in_flight, strict=True))
    assert keeps_up([some], 4.0) is False


def test_arrivals_shorter_than_an_answer_say_nothing():
    burst, _ = judged(arrivals(30.0, servers=64), "ttft<1s", RATE)
    steady = dataclasses.replace(burst, in_flight=(40.0, 45.0, 50.0, 60.0))
    assert keeps_up([steady], 4.0) is None and keeps_up([burst], 4.0) is not True


def test_a_rate_that_did_not_come_is_not_kept_up_with():
    """As recorded with a client that a full server left no processor: 70 in flight all the time, a quarter of the rate."""
    calm, _ = judged(arrivals(0.5, servers=8), "ttft<1s", RATE)
    late = dataclasses.replace(calm, in_flight=(45.2, 70.0, 70.0, 70.5), requests=200, requests_s=15.0)
    assert keeps_up([late], 60.0) is False and keeps_up([late], 15.0) is True


def test_below_saturation_is_said_where_no_setting_can_help():
    calm, _ = judged(arrivals(0.5, servers=8), "ttft<1s", RATE)
    over, _ = judged(arrivals(0.5, servers=1), "ttft<1s", RATE)
    told = load_note([calm], RATE, Objective())
    assert "below saturation" in told and "4 requests/s" in told and "no setting can raise output_tok_s" in told
    assert "--find-load rate" in told and "--objective e2el_ms.p50" in told
    assert load_note([over], RATE, Objective()) is None
    assert load_note([calm], RATE, Objective("ttft_ms.p99")) is None
    assert "no setting can raise goodput" in load_note([calm], RATE, Objective("goodput", slo=parse_slo("ttft<1s")))


def test_goodput_below_saturation_can_be_raised_while_requests_miss_their_limits():
    calm, slo = judged(arrivals(0.5, servers=8), "e2el_p50<400ms", RATE)
    assert calm.slo_share < 1 and load_note([calm], RATE, Objective("goodput", slo=slo)) is None


def test_a_closed_loop_is_called_one():
    sample, _ = judged(made(), "ttft<1s")
    assert sample.in_flight == ()
    assert load_note([sample], WORKLOAD, Objective()).startswith("2 requests are always in flight")
    assert load_note([sample], WORKLOAD, Objective("tpot_ms.p50")) is None


def with_api_server(sample, share, gpu=0.19, servers=None):
    spread = None if gpu is None else Spread(gpu, 0.0, 1.0)
    telemetry = Telemetry("cuda", gpu_share=spread, api_server_share=share, api_servers=servers)
    return dataclasses.replace(sample, telemetry=telemetry)


def test_an_api_server_that_is_always_busy_is_the_limit_and_told_so():
    sample, _ = judged(made(), "ttft<1s")
    told = load_note([with_api_server(sample, 0.97)], WORKLOAD, Objective())
    assert told.startswith("the API server is the limit at this load: its thread was busy 97% of the time, and the GPU")
    assert "the GPU was busy 19% of the time" in told
    assert "hardly raise output_tok_s" in told and "; several API servers (--serve-args \"--api-server-count 4\")" in told
    assert "GPU" not in load_note([with_api_server(sample, 0.97, gpu=None)], WORKLOAD, Objective())
    for other in (0.89, None):
        assert "API server" not in load_note([with_api_server(sample, other)], WORKLOAD, Objective())
    one_of_three = [with_api_server(sample, share) for share in (0.95, 0.7, 0.8)]
    assert "API server" not in load_note(one_of_three, WORKLOAD, Objective())
    assert load_note([with_api_server(sample, 0.97)], WORKLOAD, Objective("tpot_ms.p50")) is None


def test_of_several_api_servers_the_busiest_is_told_and_more_than_there_are_advised():
    sample, _ = judged(made(), "ttft<1s")
    told = load_note([with_api_server(sample, 0.97, servers=4)], WORKLOAD, Objective())
    assert told.startswith("an API server is the limit at this load: the thread of the busiest of 4 was busy 97% of the time")
    assert "; more API servers (--serve-args \"--api-server-count 8\") share the work" in told


def test_where_the_gpu_always_computes_the_api_server_is_not_the_only_limit():
    sample, _ = judged(made(), "ttft<1s")
    assert "API server" not in load_note([with_api_server(sample, 0.97, gpu=0.95)], WORKLOAD, Objective())


# ---------------------------------------------------------------- vLLM's own count

VLLM_GOODPUT = """
import json, sys
from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput
from vllm.benchmarks.serve import calculate_metrics, check_goodput_args

raw, words = json.load(sys.stdin)
rows = zip(raw["errors"], raw["output_lens"], raw["ttfts"], raw["itls"], raw["latencies"])
outputs = [
    RequestFuncOutput(success=not error, output_tokens=tokens, ttft=ttft, itl=gaps, latency=latency, prompt_len=64)
    for error, tokens, ttft, gaps, latency in rows
]
limits = check_goodput_args(type("Args", (), {"goodput": words}))
metrics, _ = calculate_metrics([], outputs, raw["duration"], None, [99.0], limits)
print("goodput", metrics.request_goodput)
"""


@pytest.mark.engine
def test_the_installed_vllm_counts_the_same_goodput(engine_python):
    words = ["ttft:90", "tpot:9.2", "e2el:400"]
    raw = recorded("closed_loop")
    done = subprocess.run(
        [engine_python, "-c", VLLM_GOODPUT], input=json.dumps([raw, words]), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = float(done.stdout.split("goodput")[-1])
    sample, _ = judged(raw, ",".join(words))
    assert 0 < theirs < raw["request_throughput"] and sample.goodput_requests_s == pytest.approx(theirs)
