"""The judgement on what a real H200 said of itself under load: nothing of it is a disturbance."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from advisor.measure.gpu_readings import GpuLook, GpuPoll
from advisor.measure.taints import judge, remarks
from advisor.measure.telemetry import Moment, assemble
from advisor.records import Spread, Telemetry

FILE = Path(__file__).parents[1] / "data" / "telemetry" / "h200.csv"


def recorded(phase: str) -> Telemetry:
    with FILE.open() as file:
        rows = [row for row in csv.DictReader(file) if row["phase"] == phase]
    moments = [
        Moment(
            float(row["second"]),
            {
                "GPU": GpuPoll(
                    int(row["sm_mhz"]), int(row["memory_mhz"]), int(row["temperature_c"]), float(row["power_w"]),
                    int(row["share_percent"]) / 100, int(row["memory_mib"]), int(row["reasons"]),
                )
            },
        )
        for row in rows
    ]  # fmt: skip
    warm = GpuLook({"GPU": moments[0].gpus["GPU"].memory_mib})
    return assemble("cuda", moments, len(moments), limits=(700.0, 1980), warm=warm, share_before=0.0)


@pytest.mark.parametrize("phase", ["idle", "full-1", "full-2", "light"])
@pytest.mark.parametrize("baseline", ["full-1", "full-2", "light"])
def test_a_healthy_gpu_is_not_tainted_whatever_the_candidate_draws(phase: str, baseline: str) -> None:
    """Under full load the power cap lowers the clock to 1410 MHz and less: that is the candidate's own doing."""
    assert judge(recorded(phase), recorded(baseline)) == ()


def test_what_full_load_looks_like() -> None:
    full, light, idle = recorded("full-1"), recorded("light"), recorded("idle")
    assert full.clock_reasons["sw_power_cap"] > 0.5 and full.power_w.median > 0.9 * full.power_limit_w
    assert full.sm_clock_mhz.median < 0.95 * light.sm_clock_mhz.median
    assert light.clock_reasons == {} and light.sm_clock_mhz == Spread(1980, 1980, 1980)
    assert idle.sm_clock_mhz is None and idle.power_w.median < 80 and idle.gpu_memory_mib.most == 0
    assert max(seen.gpu_growth_mib for seen in (full, light)) < 10
    assert remarks(full)[0].startswith("the GPU ran at its power limit")


def test_the_same_clock_without_that_power_is_a_disturbance() -> None:
    full, light = recorded("full-1"), recorded("light")
    held_down = dataclasses.replace(light, sm_clock_mhz=full.sm_clock_mhz)
    (found,) = judge(held_down, light)
    assert "SM clock was" in found
