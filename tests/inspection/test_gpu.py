"""What the machine has: a stand-in for NVML, a made-up sysfs, and the request against it."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from advisor.errors import EnvironmentMismatch, InputError
from advisor.inspection import amd, gpu
from advisor.records import GpuFacts
from advisor.units import GIB

H200 = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0")
CPU = GpuFacts("cpu", "Some CPU", "cpu", 2, 24.0)


def fake_nvml(names: list[str], *, driver: bool = True) -> types.ModuleType:
    """A module with the few NVML calls that are used; a handle is the device's index."""
    module = types.ModuleType("pynvml")
    module.NVMLError = type("NVMLError", (Exception,), {})
    module.open = 0

    def init():
        if not driver:
            raise module.NVMLError("Driver Not Loaded")
        module.open += 1

    def shutdown():
        module.open -= 1

    module.nvmlInit, module.nvmlShutdown = init, shutdown
    module.nvmlDeviceGetCount = lambda: len(names)
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetHandleByUUID = lambda uuid: 0
    module.nvmlDeviceGetName = lambda handle: names[handle].encode()  # old bindings give bytes
    module.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}abc"
    module.nvmlDeviceGetCudaComputeCapability = lambda handle: (9, 0)
    module.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(total=140 * GIB)
    module.nvmlSystemGetDriverVersion = lambda: "570.1"
    return module


@pytest.fixture
def nvml(monkeypatch):
    def install(names, **options):
        module = fake_nvml(names, **options)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return module

    monkeypatch.setattr(amd, "detect", lambda: None)
    return install


def test_one_gpu_is_described_and_nvml_is_left(nvml):
    module = nvml(["NVIDIA H200"])
    found = gpu.detect({})
    assert found == GpuFacts("cuda", "NVIDIA H200", "h200", 1, 140.0, "9.0", "570.1", ("GPU-0abc",))
    assert module.open == 0


def test_unlike_gpus_are_counted_by_the_first_visible_one(nvml):
    nvml(["NVIDIA L4", "NVIDIA H200", "NVIDIA H200", "NVIDIA L4"])
    assert (gpu.detect({}).slug, gpu.detect({}).count) == ("l4", 2)
    hidden = gpu.detect({"CUDA_VISIBLE_DEVICES": "2,3,1"})
    assert (hidden.slug, hidden.count, hidden.uuids) == ("h200", 2, ("GPU-2abc", "GPU-1abc"))


@pytest.mark.parametrize("setting", ["", "-1", "7", "GPU-zzz"])
def test_hidden_gpus_leave_the_processor(nvml, setting):
    nvml(["NVIDIA H200"])
    assert gpu.detect({"CUDA_VISIBLE_DEVICES": setting}).kind == "cpu"


def test_no_driver_leaves_the_processor(nvml):
    nvml([], driver=False)
    found = gpu.detect({})
    assert (found.kind, found.slug) == ("cpu", "cpu")
    assert found.count >= 1
    assert found.memory_gib > 0


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("0", [0]),
        ("1, 0", [1, 0]),
        ("1,9,0", [1]),
        ("GPU-b", [1]),
        ("GPU-", []),
        ("MIG-1/2,0", ["MIG-1/2", 0]),
        ("", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(setting, expected):
    assert gpu.visible_devices(setting, ["GPU-a1", "GPU-b2"]) == expected


def test_auto_takes_what_is_there_and_cpu_is_allowed_beside_a_gpu():
    assert gpu.check_requested("auto", H200) is H200
    assert gpu.check_requested("h200", H200) is H200
    assert gpu.check_requested("cpu", CPU) is CPU
    assert gpu.check_requested("CPU", H200).kind == "cpu"


@pytest.mark.parametrize(("found", "named"), [(H200, "NVIDIA H200"), (CPU, "no GPU")])
def test_another_gpu_names_both_and_offers_auto(found, named):
    with pytest.raises(EnvironmentMismatch) as raised:
        gpu.check_requested("H100", found)
    assert "H100" in raised.value.problem
    assert named in raised.value.problem
    assert "--gpu auto" in raised.value.hint
    assert raised.value.exit_code == 3


def test_a_mistyped_name_is_an_input_error_on_any_machine():
    for found in (H200, CPU):
        with pytest.raises(InputError):
            gpu.check_requested("HX100", found)


def test_a_gpu_that_the_table_lacks_can_be_asked_for_by_its_slug():
    found = GpuFacts("cuda", "NVIDIA Quasar X-9", "quasar-x-9", 1, 80.0)
    assert gpu.check_requested("quasar-x-9", found) is found


def test_the_processor_is_named_and_its_container_limits_the_memory(tmp_path: Path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    found = gpu.cpu_facts(tmp_path / "cpuinfo", tmp_path)
    assert (found.name, found.memory_gib) == ("Some CPU @ 2 GHz", 1.0)
    (tmp_path / "memory.max").write_text("max\n")
    assert gpu.cpu_facts(tmp_path / "nothing", tmp_path).memory_gib > 0


def amd_tree(folder: Path, names: list[str]) -> Path:
    for index, name in enumerate(names):
        device = folder / f"card{index}" / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1002\n" if name != "matrox" else "0x102b\n")
        (device / "product_name").write_text(f"{name}\n")
        (device / "mem_info_vram_total").write_text(str(192 * GIB))
        (device / "unique_id").write_text(f"id{index}\n")
    (folder / "kfd").touch()
    return folder


def test_amd_gpus_are_described_from_sysfs(tmp_path: Path):
    drm = amd_tree(tmp_path, ["matrox", "AMD Instinct MI300X", "AMD Instinct MI300X"])
    found = amd.detect(drm, drm / "kfd")
    assert (found.kind, found.slug, found.count, found.memory_gib) == ("rocm", "mi300x", 2, 192.0)
    assert found.uuids == ("id1", "id2")
    assert amd.detect(drm, drm / "absent") is None


def test_an_amd_gpu_without_a_name_is_refused(tmp_path: Path):
    drm = amd_tree(tmp_path, [""])
    with pytest.raises(EnvironmentMismatch, match="AMD"):
        amd.detect(drm, drm / "kfd")
