"""As much of torch as the launcher asks for: whether CUDA is initialised, and whether it was before a fork."""

import os
import time
from types import SimpleNamespace


class cuda:
    _pid = None  # of the process that initialised it

    @classmethod
    def initialise(cls):
        cls._pid = os.getpid()

    @classmethod
    def is_initialized(cls):
        return cls._pid == os.getpid()

    @classmethod
    def _is_in_bad_fork(cls):
        return cls._pid is not None and cls._pid != os.getpid()

    @classmethod
    def get_device_properties(cls, device=None):
        cls.initialise()
        time.sleep(float(os.environ.get("FAKE_ASK_S", "0")))
        return SimpleNamespace(name="fake", major=9, minor=0, multi_processor_count=132)
