"""Shares of several API servers, from lines as vLLM 0.26.0 wrote them on an H200."""

from __future__ import annotations

import pytest

from advisor.engine.api_servers import unequal_shares


def log(*served: int) -> str:
    lines = []
    for server, count in enumerate(served):
        start = f"(ApiServer_{server} pid={700 + server}) INFO:     127.0.0.1:5{server} -"
        lines += [f'{start} "POST /v1/completions HTTP/1.1" 200 OK'] * count
        lines += [f'{start} "GET /metrics HTTP/1.1" 200 OK'] * 50
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("served", "said"),
    [((665, 3336, 227, 921), "one of 4 API servers got 65%"), ((398, 856, 268, 5545), "one of 4 API servers got 78%")],
)
def test_shares_as_an_h200_saw_them_are_told(served, said):
    assert unequal_shares(log(*served)).startswith(said)


@pytest.mark.parametrize("served", [(25, 25, 30, 20), (37, 21, 21, 21), (70, 50)])
def test_nearly_equal_shares_are_nothing_to_tell(served):
    assert unequal_shares(log(*served)) is None


def test_two_that_share_badly():
    assert "one of 2 API servers got 75%" in unequal_shares(log(75, 25))


def test_servers_that_got_nothing_count():
    assert "one of 3 API servers got 100%" in unequal_shares(log(0, 200, 0))


def test_one_server_and_few_requests_say_nothing():
    assert unequal_shares(log(5000)) is None
    assert unequal_shares(log(90, 9)) is None
    assert unequal_shares('(APIServer pid=7) INFO:  127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 500) is None
