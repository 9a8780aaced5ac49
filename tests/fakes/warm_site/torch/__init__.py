"""As much of torch as the launcher asks for: whether CUDA is initialised, and whether it was before a fork."""

import os


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
