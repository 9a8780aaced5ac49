"""What disturbs a sample, and what is the candidate's own doing."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.measure.taints import judge, reference, remarks, tainted
from advisor.records import Foreign, Spread, Telemetry
from tests.study_help import sample, trial


def flat(value: float) -> Spread:
    return Spread(value, value, value)


# An H200 under a steady load, and a CPU server that uses both cores of its machine.
GPU = Telemetry(
    kind="cuda", polls=60, duration_s=30.0, longest_gap_s=0.51,
    sm_clock_mhz=flat(1980), sm_clock_limit_mhz=1980, memory_clock_mhz=flat(3201), temperature_c=flat(45), power_w=flat(400),
    power_limit_w=700.0, gpu_share=flat(0.97), gpu_share_before=0.0, gpu_memory_mib=flat(130_000), gpu_growth_mib=20,
    cores=16, own_cores=4.0, foreign_cores=0.1, steal_share=0.001, pressure_share=0.02, load=flat(4),
)  # fmt: skip
CPU = Telemetry(
    polls=60, duration_s=30.0, longest_gap_s=0.6, cores=2, own_cores=1.9, foreign_cores=0.05, steal_share=0.0,
    pressure_share=0.8, load=flat(6),
)  # fmt: skip


def seen(base: Telemetry = GPU, **changes) -> Telemetry:
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize("quiet", [GPU, CPU, Telemetry(), None], ids=["gpu", "cpu", "nothing known", "none"])
def test_a_quiet_machine_is_not_tainted(quiet) -> None:
    assert judge(quiet) == judge(quiet, GPU) == judge(quiet, CPU) == ()


STRANGER = Foreign(4711, "python", 5_000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clock_reasons": {"hw_thermal_slowdown": 0.1}}, "too hot (hw_thermal_slowdown), in 10% of the polls"),
        ({"clock_reasons": {"sw_thermal_slowdown": 0.05}}, "too hot (sw_thermal_slowdown)"),
        ({"clock_reasons": {"hw_power_brake_slowdown": 0.05}}, "power supply slowed the GPU"),
        ({"clock_reasons": {"hw_slowdown": 0.05}}, "halved its clock"),
        ({"gpu_processes": (STRANGER,)}, "pid 4711 (python, 4.9 GiB) came to the GPU"),
        (
            {"gpu_processes": (dataclasses.replace(STRANGER, since_before=True, gpu_share=0.3),)},
            "pid 4711 (python, 4.9 GiB) computed on the GPU (30% of it)",
        ),
        ({"gpu_share_before": 0.4}, "in use before our server was launched (40% of the time)"),
        ({"gpu_growth_mib": 4096}, "rose by 4.0 GiB"),
        ({"power_limit_w": 500.0}, "power limit was 500 W instead of 700 W"),
        ({"sm_clock_mhz": Spread(1800, 345, 1980)}, "SM clock was 1800 MHz, in the baseline's samples 1980 MHz"),
        ({"memory_clock_mhz": flat(2619)}, "memory clock was 2619 MHz"),
        ({"foreign_cores": 11.0}, "other programs used 11.0 of 16 cores: by nobody who can be seen"),
        ({"steal_share": 0.06}, "6% of the cores' time to others (steal)"),
        ({"throttled_share": 0.3}, "CPU quota stopped it in 30% of the periods"),
        ({"longest_gap_s": 42.0}, "stood still, or had no time for the advisor, for 42 s"),
    ],
)
def test_each_disturbance_is_named(changes, words) -> None:
    (found,) = judge(seen(**changes), GPU)
    assert words in found


@pytest.mark.parametrize(
    "changes",
    [
        {"clock_reasons": {"sw_power_cap": 1.0}, "power_w": flat(699), "sm_clock_mhz": flat(1400)},  # its own appetite
        {"power_w": flat(650), "sm_clock_mhz": flat(1500)},  # the same, where the reason flickers between the polls
        {"clock_reasons": {"hw_slowdown": 0.02}},  # one poll in which the clock changed
        {"clock_reasons": {"applications_clocks_setting": 1.0}},  # for all candidates alike
        {"gpu_processes": (dataclasses.replace(STRANGER, since_before=True, gpu_share=0.01),)},  # idle: costs no speed
        {"gpu_growth_mib": 800},  # the server's own buffers
        {"sm_clock_mhz": Spread(1960, 345, 1980)},
        {"foreign_cores": 8.0},  # of 16, and four are still free
        {"own_cores": 15.5},  # everything is ours
        {"throttled_share": 0.05},
        {"longest_gap_s": 2.0},
    ],
)
def test_what_is_no_disturbance(changes) -> None:
    assert judge(seen(**changes), GPU) == ()


def test_hw_slowdown_of_one_poll_in_a_short_sample() -> None:
    assert judge(seen(polls=8, clock_reasons={"hw_slowdown": 0.125})) == ()
    assert judge(seen(polls=8, clock_reasons={"hw_slowdown": 0.25})) != ()
    assert judge(seen(polls=8, clock_reasons={"hw_thermal_slowdown": 0.125})) != ()


def test_clocks_are_judged_by_the_baseline_only() -> None:
    """A GPU whose clocks are locked low is as low for every candidate: a remark, no taint."""
    locked = seen(sm_clock_mhz=flat(1200), clock_reasons={"applications_clocks_setting": 1.0})
    assert judge(locked) == judge(locked, locked) == ()
    assert remarks(locked) == ("the SM clock was 1200 MHz of 1980 MHz: applications_clocks_setting",)


def test_on_a_processor_only_what_is_not_ours_counts() -> None:
    assert judge(seen(CPU, own_cores=2.0, pressure_share=1.0, load=flat(40))) == ()
    who = (Foreign(77, "pytest", cores=0.4), Foreign(78, "ld", cores=0.1))
    (found,) = judge(seen(CPU, foreign_cores=0.5, own_cores=1.5, cpu_processes=who))
    assert found == "other programs used 0.5 of 2 cores: pytest (pid 77) 0.4, ld (pid 78) 0.1"
    # A server that computes on the processor shares caches and memory with others, free cores or not.
    assert judge(seen(CPU, cores=16, foreign_cores=2.0, own_cores=8.0)) != ()


def test_a_quota_is_the_candidates_own_appetite_on_a_processor() -> None:
    assert judge(seen(CPU, throttled_share=0.9), CPU) == ()
    assert remarks(seen(CPU, throttled_share=0.9)) == ("the container's CPU quota was used up in 90% of its periods",)


def test_remarks_of_what_is_the_same_for_all() -> None:
    assert remarks(None) == remarks(GPU) == remarks(CPU) == ()
    capped = seen(clock_reasons={"sw_power_cap": 0.8}, sm_clock_mhz=flat(1400), power_w=flat(699))
    assert remarks(capped) == ("the GPU ran at its power limit, with 1400 MHz",)
    beside = seen(gpu_processes=(Foreign(9, "Xorg", 300, since_before=True),))
    assert remarks(beside) == ("pid 9 (Xorg, 0.3 GiB) holds GPU memory beside the server",)


def test_the_reference_is_the_first_clean_sample_of_a_baseline() -> None:
    def of(telemetry, taints=()):
        return dataclasses.replace(sample(0, 100.0), telemetry=telemetry, taints=taints)

    hot, clean, later = seen(temperature_c=flat(90)), GPU, CPU
    baseline = dataclasses.replace(trial(0, {}, 100.0), samples=(of(hot, ("too hot",)), of(clean), of(later)))
    other = dataclasses.replace(trial(1, {"x": 1}, 100.0), samples=(of(later),))
    assert reference([other, baseline]) is clean
    assert reference([other], [of(later)]) is later
    assert reference([other]) is None
    assert tainted(baseline) == ("too hot",) and tainted(other) == ()
