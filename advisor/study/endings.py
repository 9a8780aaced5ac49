"""How a study ends early: Ctrl-C, a signal, a full disk. The journal holds whole trials only, so it can go on."""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Iterator

from advisor.errors import EnvironmentMismatch, Interrupted
from advisor.request import TuneRequest

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ends_are_told(request: TuneRequest) -> Iterator[None]:
    """Ctrl-C outside of the launches, and a full disk: the journal holds whole trials only, so the study can go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("stopped; no server is running", "the same command goes on from what was measured") from None
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = error.filename or request.runs
        raise EnvironmentMismatch(
            f"{error.strerror}: {where}",
            f"finished trials are kept in {request.runs}: the same command goes on from there",
        ) from None


@contextlib.contextmanager
def termination_is_ctrl_c() -> Iterator[None]:
    """`kill`, a stopping container and a closed terminal get the same orderly end as Ctrl-C. What `nohup` ignores stays ignored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    heard = [number for number in _ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
