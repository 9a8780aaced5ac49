"""The floor, against figures worked out by hand."""

from __future__ import annotations

import pytest

from advisor.anatomy.floor import floor_ms, kv_bytes, weight_bytes

DENSE = {"dense_bytes": 16e9, "embedding_bytes": 1e9, "experts_bytes": 0, "experts": 0, "experts_per_token": None}
MOE = {"dense_bytes": 1e9, "embedding_bytes": 0, "experts_bytes": 8e9, "experts": 8, "experts_per_token": 2}
# Llama-3.1-8B: 32 layers, 8 KV heads of 128, keys and values in two bytes.
KV = [{"layers": 32, "bytes_per_token": 2 * 8 * 128 * 2, "window": None, "state_bytes": 0}]


def test_dense_weights_are_read_whatever_the_batch_and_the_embedding_is_not():
    assert weight_bytes(DENSE, 1) == weight_bytes(DENSE, 64) == 16e9


def test_experts_as_many_as_the_batch_is_expected_to_meet():
    assert weight_bytes(MOE, 1) == pytest.approx(1e9 + 2e9)
    assert weight_bytes(MOE, 2) == pytest.approx(1e9 + 8e9 * (1 - 0.75**2))
    assert weight_bytes(MOE, 1000) == pytest.approx(9e9)


def test_kv_grows_with_batch_and_context():
    assert kv_bytes(KV, 1, 1) == 131072
    assert kv_bytes(KV, 64, 512) == 64 * 512 * 131072


def test_a_window_bounds_what_is_read_and_a_state_is_read_once():
    windowed = [{"layers": 2, "bytes_per_token": 10, "window": 100, "state_bytes": 0}]
    assert kv_bytes(windowed, 1, 512) == 2000
    assert kv_bytes(windowed, 1, 50) == 1000
    assert kv_bytes([{"layers": 3, "bytes_per_token": 0, "window": None, "state_bytes": 7}], 2, 512) == 42


def test_the_floor_of_an_8b():
    """16 GB and 4.3 GB of KV cache at 4000 GB/s."""
    assert floor_ms(DENSE, KV, 64, 512, 4000) == pytest.approx((16 + 4.294967296) / 4)
