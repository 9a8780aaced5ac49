"""Writes what a CUDA vLLM objects to, backend by backend, for random surroundings on compute capability 9.0.

How backends-cuda-0.26.json was recorded (vLLM 0.26.0, NVML answering as on an H200; CUDA_PYTHON is its interpreter):
    CUDA_PYTHON tests/data/resolution/record_backends.py > tests/data/resolution/backends-cuda-0.26.json
"""

import inspect
import json
import os
import random
import sys

NAMES = (
    "FLASH_ATTN FLASHINFER TRITON_ATTN FLEX_ATTENTION TURBOQUANT HPC_ATTN "
    "FLASH_ATTN_MLA FLASHMLA FLASHINFER_MLA TRITON_MLA TOKENSPEED_MLA"
)
FIELDS = ("dtype", "kv_cache_dtype", "block_size", "head_size", "mla", "sinks")


def drawn(chance: random.Random, for_mla: bool) -> list:
    usual = 576 if for_mla else 128
    return [
        chance.choice(["bfloat16"] * 4 + ["float16", "float32"]),
        chance.choice(["auto"] * 4 + ["bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"]),
        chance.choice([None] * 3 + [8, 16, 32, 64, 128, 256]),
        chance.choice([usual] * 6 + [64, 80, 96, 256, 320, 512]),
        chance.random() < (0.9 if for_mla else 0.1),
        chance.random() < 0.1,
    ]


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    chance, lines = random.Random(5), []
    with set_current_vllm_config(VllmConfig()):
        for name in NAMES.split():
            backend = AttentionBackendEnum[name].get_class()
            known = inspect.signature(backend.validate_configuration).parameters
            for _ in range(40):
                case = drawn(chance, "MLA" in name)
                asked = {
                    "head_size": case[3],
                    "dtype": getattr(torch, case[0]),
                    "kv_cache_dtype": case[1],
                    "block_size": case[2],
                    "use_mla": case[4],
                    "has_sink": case[5],
                    "use_sparse": False,
                    "use_mm_prefix": False,
                    "use_per_head_quant_scales": False,
                    "device_capability": DeviceCapability(9, 0),
                    "attn_type": "decoder",
                }
                said = backend.validate_configuration(**{key: value for key, value in asked.items() if key in known})
                lines.append(json.dumps([name, *case, said]))
    out.write(
        '{"fields": ' + json.dumps(["backend", *FIELDS, "reasons"]) + ',\n "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
