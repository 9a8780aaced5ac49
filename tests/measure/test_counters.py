"""The server's own counters: parsing its page, differences, and what a missing page means."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from advisor.measure import counters
from advisor.measure.counters import Counters, difference, parse

# Shape of vLLM 0.32.0's page: labels, `_created` twins that must not be summed, one line for each reason of the end.
PAGE = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 900.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 100.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 250.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 640.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 18.0
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="m"} 20.0
vllm:e2e_request_latency_seconds_count{model_name="m"} 20.0
vllm:e2e_request_latency_seconds_sum{model_name="m"} 7.5
"""


def test_counters_are_summed_over_their_labels():
    assert parse(PAGE) == Counters(250, 1000, 3, 1000, 640, 20, 7.5)


def test_what_the_page_lacks_is_unknown_and_not_zero():
    assert parse('vllm:prompt_tokens_total{engine="0"} 5\n') == Counters(prompt_tokens=5)


def test_the_difference_is_of_the_interval_and_unknown_without_both_pages():
    before, after = Counters(prompt_tokens=10, requests=1), Counters(prompt_tokens=25, requests=3, preemptions=2)
    assert difference(before, after) == Counters(prompt_tokens=15, requests=2, preemptions=2)
    assert difference(None, after) is None
    assert difference(before, None) is None


@pytest.mark.parametrize(
    ("counted", "ratio"),
    [
        (Counters(prefix_hits=25, prefix_queries=100, prompt_tokens=100), 0.25),
        (Counters(prefix_hits=0, prefix_queries=0, prompt_tokens=100), 0.0),  # prefix caching switched off
        (Counters(prefix_hits=25, prefix_queries=100), 0.25),
        (Counters(prompt_tokens=100), None),
        (Counters(prefix_hits=0, prefix_queries=0, prompt_tokens=0), None),
    ],
)
def test_the_hit_ratio_is_of_all_prompt_tokens(counted: Counters, ratio: float | None):
    assert counted.prefix_hit_ratio == ratio


@pytest.fixture
def page_server() -> Iterator[tuple[str, list[str]]]:
    """A server whose /metrics answers the pages of a list one by one, the last one for ever; an empty page is an error."""
    pages: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            page = pages.pop(0) if len(pages) > 1 else pages[0]
            self.send_response(200 if page else 500)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    server.server_close()


def test_a_page_that_cannot_be_read_gives_none(page_server: tuple[str, list[str]]):
    url, pages = page_server
    pages.append("")
    assert counters.read(url) is None
    assert counters.read("http://127.0.0.1:1") is None
    pages[:] = ["this is { no metrics page\n"]
    assert counters.read(url) is None


def test_reading_waits_until_the_last_requests_are_counted(page_server: tuple[str, list[str]]):
    url, pages = page_server
    pages += [f"vllm:request_success_total {count}\n" for count in (10, 11, 14)]
    settled = counters.read_settled(url, Counters(requests=10), requests=4)
    assert settled == Counters(requests=14)


def test_reading_does_not_wait_for_ever(page_server: tuple[str, list[str]]):
    url, pages = page_server
    pages.append("vllm:request_success_total 11\n")
    assert counters.read_settled(url, Counters(requests=10), requests=4, limit_s=0.2) == Counters(requests=11)
