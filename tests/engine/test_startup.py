"""Parts of a start, from real logs: an H200 (vLLM 0.26.0) compiling anew and from its cache, and the CPU build 0.32.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.logs import parse_active
from advisor.engine.startup import parse_startup
from advisor.records import StartUp

LOGS = Path(__file__).parents[1] / "data" / "startup"
# Seconds from exec to first token, as the launches' journals have them.
START_S = {"h200-cold": 86.381, "h200-warm": 48.744, "cpu-cold": 61.4, "cpu-eager": 23.592}


def parts(name: str) -> StartUp:
    log = (LOGS / f"{name}.log").read_text(encoding="utf-8")
    return parse_startup(log, START_S[name], parse_active(log))


def test_a_cold_start_compiles_anew():
    found = parts("h200-cold")
    assert found.cache == "cold"
    assert (found.load_s, found.compile_s, found.capture_s) == (1.72, 20.65, 9.0)
    assert found.imports_s == pytest.approx(86.381 - 46, abs=0.01)  # 02:29:27 to 02:30:13
    assert found.kernels_s == 9.0  # autotuner 2 s, from the last capture to the end of the warm-up 7 s


def test_a_warm_start_finds_its_compiled_code():
    found = parts("h200-warm")
    assert found.cache == "warm"
    assert found.compile_s == 3.51


@pytest.mark.parametrize("name", START_S)
def test_the_parts_add_up_to_the_whole(name: str):
    found = parts(name)
    known = (found.imports_s, found.load_s, found.compile_s, found.capture_s, found.kernels_s, found.rest_s)
    assert sum(part or 0.0 for part in known) == pytest.approx(START_S[name], abs=0.05)
    assert found.imports_s is not None and 5 < found.imports_s < START_S[name]


def test_the_cpu_build():
    assert parts("cpu-cold").cache == "cold"
    assert parts("cpu-eager").cache is None


def test_a_log_that_tells_nothing():
    found = parse_startup("", 12.5, parse_active(""))
    assert found == StartUp(rest_s=12.5)


def test_a_forked_server_has_no_imports_and_its_parts_add_up_too():
    log = (LOGS / "cpu-eager.log").read_text(encoding="utf-8")
    found = parse_startup(log, START_S["cpu-eager"], parse_active(log), forked=True)
    assert found.imports_s is None and parts("cpu-eager").imports_s > 5
    assert found.rest_s == pytest.approx(START_S["cpu-eager"] - (found.load_s or 0.0), abs=0.02)
