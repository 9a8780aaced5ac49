"""The values that capture.py takes and gives. Every size is a number of tokens in a batch, as in vLLM's own lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.records import Finding

# Modes with FULL graphs of their own for decode batches, and piecewise ones or none for the rest.
SEPARATE_MODES = ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY")


@dataclass(frozen=True)
class CaptureRequest:
    """All that the capture list depends on, after vLLM has filled in its defaults.

    `sizes` and `maximum` are what the person gave, None where vLLM infers them; until 0.11.0 `maximum` is the one number of
    --cuda-graph-sizes, and `sizes_by_flag` says that `sizes` came with that option too (several numbers) and not in the
    compilation config: only there are they checked against the batch. `cudagraph_mode` is the resolved one; before 0.10.2
    it is FULL for full_cuda_graph and anything else for the default.
    """

    version: tuple[int, ...]
    max_num_seqs: int
    max_num_batched_tokens: int
    speculative_tokens: int = 0
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    sizes: tuple[int, ...] | None = None
    maximum: int | None = None
    performance_mode: str = "balanced"
    compute_capability: tuple[int, int] | None = None
    runner_v2: bool = False
    cudagraph_mode: str = "FULL_AND_PIECEWISE"
    sizes_by_flag: bool = False
    enforce_eager: bool = False
    old_engine: bool = False  # V0 of 0.9.0 to 0.10.2, with a list and decode graphs of its own

    @property
    def query_length(self) -> int:
        """Tokens of one request in a decode batch: the new one and those that the drafter proposed."""
        return 1 + self.speculative_tokens

    @property
    def graphs(self) -> bool:
        return not self.enforce_eager and self.cudagraph_mode.upper() != "NONE"

    @property
    def operating_point(self) -> int:
        """Tokens of the largest decode batch: every sequence decoding, or as many as fit max_num_batched_tokens."""
        return self.query_length * min(self.max_num_seqs, self.max_num_batched_tokens // self.query_length)


@dataclass(frozen=True)
class CaptureList:
    """What vLLM captures. `sizes` is ascending, and empty where it captures nothing or refuses to start.

    `configured` is what create_engine_config() leaves in the compilation config, before the model runner rounds the sizes
    for speculative decoding; until 0.11.0 it may repeat a size.
    """

    sizes: tuple[int, ...]
    maximum: int
    findings: tuple[Finding, ...] = ()
    configured: tuple[int, ...] = ()
    configured_maximum: int = 0
    refused: bool = False  # vLLM stops with an error instead of serving


@dataclass(frozen=True)
class Coverage:
    """Which uniform decode batches run in a FULL graph. All in tokens; a batch of n requests has n times the query length.

    Batches that mix prefill and decode are no matter of this: they run piecewise or, in mode FULL, by the same list.
    """

    full_decode_max: int  # the largest decode batch that does, 0 for none
    full_decode_sizes: tuple[int, ...]  # captured FULL graphs that decode batches use
    operating_point: int  # the largest decode batch that can occur
    uncovered_decode_batches: tuple[tuple[int, int], ...]  # inclusive ranges of those that do not
    padded: Mapping[int, int] = field(default_factory=dict)  # decode batch -> the FULL graph that runs it
    suggestion: tuple[int, ...] | None = None  # explicit list that covers all; None: nothing is missing, or no list can
