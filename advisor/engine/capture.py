"""The capture list of a command, and the decode batches that it covers: the names that the rest of the advisor uses."""

from __future__ import annotations

from advisor.engine.capture_coverage import coverage
from advisor.engine.capture_request import CaptureList, CaptureRequest, Coverage
from advisor.engine.capture_sizes import capture_list

__all__ = ["CaptureList", "CaptureRequest", "Coverage", "capture_list", "coverage"]
