"""A platform by name."""

from enum import Enum
from types import SimpleNamespace


class PlatformEnum(Enum):
    CUDA = 1


current_platform = SimpleNamespace(_enum=PlatformEnum.CUDA)
