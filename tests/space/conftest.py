import pytest

from advisor.records import BackendFacts, EngineFacts, GpuFacts, Workload


@pytest.fixture
def cuda_engine():
    valid = [BackendFacts(name) for name in ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN")]
    refused = BackendFacts("TURBOQUANT", ("kv_cache_dtype not supported",))
    return EngineFacts("py", "3.12", "0.26.0", "2.11.0", "cuda", backends=(*valid, refused))


@pytest.fixture
def cpu_engine():
    return EngineFacts("py", "3.11", "0.32.0", "2.13.0", "cpu", backends=(BackendFacts("CPU_ATTN"),))


@pytest.fixture
def h200():
    return GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8)


@pytest.fixture
def chat():
    return Workload("chat", 1024, 128, 256, concurrency=48)
