"""Which options, config keys and environment variables each vLLM release knows, from the releases' own parsers.

The table in data/options.json.gz is made by tools/option_tables.py from what each release's `vllm serve` parser accepts
(tools/release_parser.py executes it). It knows the releases of advisor/engine/versions.py; any other version counts as the
nearest of them below. Names stand for every accepted spelling: `--no-x`, `-tp` and `--disable-x` are in it too.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from advisor.engine.versions import RELEASES

Version = tuple[int, ...]

# Old option -> what to write instead. Read in the deprecation texts and the conversions of the last releases that had it.
RENAMED: dict[str, str] = {
    "--cuda-graph-sizes": "--cudagraph-capture-sizes",
    "--task": "--runner",
    "--guided-decoding-backend": "--structured-outputs-config.backend",
    "--guided-decoding-disable-fallback": "--structured-outputs-config.disable_fallback",
    "--guided-decoding-disable-any-whitespace": "--structured-outputs-config.disable_any_whitespace",
    "--guided-decoding-disable-additional-properties": "--structured-outputs-config.disable_additional_properties",
    "--override-pooler-config": "--pooler-config",
    "--num-redundant-experts": "--eplb-config.num_redundant_experts",
    "--eplb-window-size": "--eplb-config.window_size",
    "--eplb-step-interval": "--eplb-config.step_interval",
    "--eplb-log-balancedness": "--eplb-config.log_balancedness",
    "--disable-mm-preprocessor-cache": "--mm-processor-cache-gb 0",
    "--enable-multimodal-encoder-data-parallel": "--mm-encoder-tp-mode data",
    "--disable-log-requests": "--no-enable-log-requests",
    "--rope-scaling": "--hf-overrides",
    "--rope-theta": "--hf-overrides",
}
RENAMED_KEYS: dict[str, dict[str, str]] = {
    "--compilation-config": {
        "level": "mode",
        "use_cudagraph": "cudagraph_mode",
        "full_cuda_graph": "cudagraph_mode",
        "use_inductor": "backend",
        "compile_ranges_split_points": "compile_ranges_endpoints",
        "encoder_cudagraph_max_images_per_batch": "encoder_cudagraph_max_vision_items_per_batch",
    },
    "--compilation-config.pass_config": {
        "enable_fusion": "fuse_norm_quant and fuse_act_quant",
        "enable_attn_fusion": "fuse_attn_quant",
        "enable_noop": "eliminate_noops",
        "enable_sequence_parallelism": "enable_sp",
        "enable_async_tp": "fuse_gemm_comms",
        "enable_fi_allreduce_fusion": "fuse_allreduce_rms",
        "fi_allreduce_fusion_max_token_num": "fi_allreduce_fusion_max_size_mb",
    },
    "--attention-config": {"use_cudnn_prefill": "mla_prefill_backend", "use_fp4_indexer_cache": "indexer_kv_dtype"},
}


@dataclass(frozen=True)
class OptionStatus:
    """Whether a name exists in a version, and if not, why.

    state: "exists"; "removed" (gone since `changed`); "renamed" (gone since `changed`, now called `renamed_to`);
    "added" (comes with `changed`, later than the version asked for; `renamed_to` is then what serves there); "unknown" (in no
    release read).
    """

    name: str
    state: str
    changed: Version | None = None
    renamed_to: str | None = None
    option: str | None = None  # the long option that this spelling belongs to: --enforce-eager for --no-enforce-eager
    kind: str | None = None  # "switch", "value", "list" or "json"

    @property
    def exists(self) -> bool:
        return self.state == "exists"


@dataclass(frozen=True)
class Default:
    """An option's default in the command line, and the first release read that has it."""

    since: Version
    value: Any  # None: none there; vLLM decides later


@lru_cache(maxsize=1)
def _data() -> Mapping[str, Any]:
    """See tools/option_tables.py for the shape. A run [first, last, ...] counts releases from 0, both ends included."""
    packed = resources.files("advisor").joinpath("engine/data/options.json.gz").read_bytes()
    return json.loads(gzip.decompress(packed))


def release_index(version: Version) -> int:
    """Position in RELEASES of the release that stands for a version; -1 for one before all."""
    return bisect_right(RELEASES, tuple(version)) - 1


def option_status(name: str, version: Version) -> OptionStatus:
    """The state of an option as spelled on the command line (with its dashes, without `=value` or `.key`)."""
    return _status(_normal(name), _data()["spellings"].get(_normal(name), ()), version, RENAMED)


def key_status(option: str, key: str, version: Version) -> OptionStatus:
    """The same for a key of an option that takes JSON: ("--compilation-config", "level") or (..., "pass_config.enable_sp").

    Known for --compilation-config, --attention-config, --kernel-config and --speculative-config; else "unknown".
    """
    parent, _, last = f"{option}.{key}".rpartition(".")
    runs = _data()["keys"].get(parent, {}).get(last, ())
    return _status(last, runs, version, RENAMED_KEYS.get(parent, {}))


def env_status(name: str, version: Version) -> OptionStatus:
    """The same for an environment variable of vLLM's own list (names outside VLLM_ are mostly not in it)."""
    return _status(name, _data()["env"].get(name, ()), version, {})


def config_keys(option: str, version: Version) -> tuple[str, ...]:
    """The keys that a version knows of an option that takes JSON, or of a part of it; empty where no table holds them."""
    at = release_index(version)
    keys = _data()["keys"].get(option, {})
    return tuple(sorted(key for key, runs in keys.items() if _run(runs, at)))


def options_of(version: Version) -> tuple[str, ...]:
    """All spellings that a version accepts."""
    at = release_index(version)
    return tuple(name for name, runs in _data()["spellings"].items() if _run(runs, at))


def unabbreviated(name: str, version: Version) -> tuple[str, ...]:
    """Options that a shortened name may mean: argparse accepts the beginning of a long option when it fits only one."""
    normal = _normal(name)
    return tuple(sorted(one for one in options_of(version) if one.startswith(normal))) if len(normal) > 2 else ()


def defaults(name: str) -> tuple[Default, ...]:
    """The defaults an option had over the releases, oldest first; one entry where it never changed; empty if unknown."""
    runs = _data()["defaults"].get(_normal(name), ())
    return tuple(Default(RELEASES[first], value) for first, value in runs)


def choices(name: str, version: Version) -> tuple[Any, ...]:
    """The values that a version's parser allows for an option; empty where it allows any word, or does not know the option."""
    run = _run(_data()["choices"].get(_normal(name), ()), release_index(version))
    return tuple(run[2]) if run else ()


def _status(name: str, runs: Sequence[Any], version: Version, renamed: Mapping[str, str]) -> OptionStatus:
    at = release_index(version)
    if run := _run(runs, at):
        option, kind = (*run[2:], None, None)[:2]
        return OptionStatus(name, "exists", option=option, kind=kind)
    earlier, later = [run for run in runs if run[1] < at], [run for run in runs if run[0] > at]
    if earlier:
        gone = RELEASES[earlier[-1][1] + 1]
        if name in renamed:
            return OptionStatus(name, "renamed", gone, renamed[name])
        return OptionStatus(name, "removed", gone)
    if later:
        old = next((before for before, after in renamed.items() if after == name), None)
        return OptionStatus(name, "added", RELEASES[later[0][0]], old)
    return OptionStatus(name, "unknown")


def _run(runs: Iterable[Any], at: int) -> Any:
    return next((run for run in runs if run[0] <= at <= run[1]), None)


def _normal(name: str) -> str:
    """vLLM's parser takes underscores in long options for dashes."""
    return name.replace("_", "-") if name.startswith("--") else name
