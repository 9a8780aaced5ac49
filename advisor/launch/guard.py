"""Runs one server and ends everything it started: when told to, or when the advisor is gone. Standard library only.

The advisor starts it with its own interpreter (`python -I -S guard.py`), so that it is up in some 20 ms, and talks to
it over two pipes, one JSON value a line:
    stdin   first {"argv": [..], "env": {..}, "cwd": "..", "log": "..", "leader_grace_s": s, "group_grace_s": s,
             "scratch": folder or null}; then
            "stop" begins the stop ladder and "kill" skips its waits. End of file means "stop": a pipe is closed by the
            kernel whatever ends the advisor, SIGKILL included.
    stdout  {"pid": N} once the server's process exists, {"exit": CODE} when it has ended (CODE as in subprocess: minus
            the signal's number), {"left": [..]} as the last word, with the pids that could not be ended; before it
            {"stubborn": [..]}, with those that went on when the server had ended at SIGTERM and they had got one too.

The guard lives in a session of its own, so Ctrl-C at the terminal does not reach it. On Linux it is the *child
subreaper* of the server: whatever the server's descendants do (a new session, a double fork, a dead parent), they stay
descendants of the guard. Should the guard itself be killed, the kernel kills the server (PR_SET_PDEATHSIG). Elsewhere
only the server's process group is known.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# A process in an uninterruptible driver call dies only when that call returns; after this long it is reported as left.
KILL_WAIT_S = 20.0
# Python's resource trackers end when those they track for have, and remove the shared memory that these left: 0.4 GiB of an engine.
TRACKER_S = 10.0  # it takes milliseconds, on a busy machine seconds
EXEC_FAILED = 127  # exit code where the program could not be executed, as shells have it
LINUX = sys.platform.startswith("linux")


def prctl(option: int, value: int) -> None:
    """One call of Linux's prctl; does nothing on other systems."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def start(order: dict) -> int:
    """Fork the server into its own session: stdin from /dev/null, stdout and stderr into the log. Returns its pid, 0 in it."""
    if order.get("scratch"):
        with contextlib.suppress(OSError):  # the server says itself where it cannot write
            os.mkdir(order["scratch"], 0o700)  # noqa: PTH102
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            take_shape(order, guard)
        except BaseException as error:  # never return into the guard's loop in the child
            fail(order, error)
    return pid


def take_shape(order: dict, guard: int) -> None:
    """In the child: what a server has of its own before it is a program."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it died before the line above could matter
        os._exit(EXEC_FAILED)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # ignored signals would stay ignored in the server
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for fd in (log, null):
        os.close(fd)
    os.chdir(order["cwd"])


def execute(order: dict) -> None:
    """Become the program; comes back by no way."""
    try:
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:
        fail(order, error)


def fail(order: dict, error: BaseException) -> None:
    os.write(2, f"advisor: cannot execute {order['argv'][0]}: {error}\n".encode())
    os._exit(EXEC_FAILED)


class Children:
    """What is left of the server, and the exit code of its first process."""

    def __init__(self, leader: int):
        self.leader = leader
        self.exit_code: int | None = None

    def reap(self) -> None:
        """Collect the ended children; orphans that the subreaper inherited too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.leader:
                self.exit_code = os.waitstatus_to_exitcode(status)
                say({"exit": self.exit_code})

    def alive(self) -> list[int]:
        self.reap()
        return descendants(os.getpid()) if LINUX else group_members(self.leader)

    def leader_gone(self) -> bool:
        self.reap()
        return self.exit_code is not None

    def all_gone(self) -> bool:
        return not self.alive()

    def signal_leader(self, number: int) -> None:
        if self.exit_code is None:
            send(self.leader, number)

    def signal_all(self, number: int) -> None:
        """The group first, in one call that no fork can escape; then whoever left the group."""
        if any(in_group(pid, self.leader) for pid in self.alive()):
            send(-self.leader, number)
        for pid in self.alive():
            send(pid, number)


def descendants(root: int) -> list[int]:
    """Pids of all living descendants of `root`, from /proc; zombies are not counted."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (importing pathlib would double the guard's start)
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
        except OSError:
            continue  # ended meanwhile
        # A zombie's children are somebody else's by now, so leaving it out hides nobody; but a process whose first
        # thread ended before the others looks like a zombie with several threads.
        if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
            parents.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    level = parents.get(root, [])
    while level:
        found += level
        level = [child for pid in level for child in parents.get(pid, [])]
    return found


def but_trackers(pids: list[int]) -> list[int]:
    return [pid for pid in pids if b"multiprocessing.resource_tracker" not in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def group_members(leader: int) -> list[int]:
    """Where there is no /proc: the leader's pid as long as its group has a member."""
    return [leader] if send(-leader, 0) else []


def in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def send(pid: int, number: int) -> bool:
    """Whether there was somebody to signal; a negative pid is a process group."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def say(value: dict) -> None:
    """One line to the advisor, if it still listens."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(value).encode() + b"\n")


class Orders:
    """The advisor's lines, and being woken by an ended child."""

    def __init__(self) -> None:
        self.rest = b""
        self.closed = False
        self.killing = False
        self.stopping = False
        self.wake, self.wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.wake_write, False)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.terminated)

    def close(self) -> None:
        """For a server that is forked and not executed: what is the guard's alone."""
        signal.set_wakeup_fd(-1)
        os.close(self.wake)
        os.close(self.wake_write)

    def terminated(self, *_: object) -> None:
        """Somebody asks the guard itself to end: it takes the server with it."""
        self.stopping = True

    def first(self) -> dict | None:
        """The order to start; None if the advisor died before it was complete."""
        while b"\n" not in self.rest:
            chunk = os.read(0, 65536)
            if not chunk:
                return None
            self.rest += chunk
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def wait(self, timeout_s: float | None) -> None:
        """Return after the timeout, an ended child or a word from the advisor, whichever is first."""
        sources = [self.wake] if self.closed else [0, self.wake]
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self.wake in ready:
            os.read(self.wake, 4096)
        if 0 in ready:
            chunk = os.read(0, 65536)
            self.rest += chunk
            self.closed = not chunk
        self.killing = self.killing or b'"kill"' in self.rest
        self.stopping = self.stopping or self.closed or self.killing or b'"stop"' in self.rest


def stop(children: Children, orders: Orders, leader_grace_s: float, group_grace_s: float) -> list[int]:
    """The ladder: SIGTERM to the server, SIGTERM to its group, SIGKILL to all, trackers last. Returns the pids that outlived it."""
    died_before = children.leader_gone()
    children.signal_leader(signal.SIGTERM)
    wait_until(children.leader_gone, orders, leader_grace_s)
    if not orders.killing:  # an orderly server has taken the rest with it by now
        orderly = children.leader_gone() and not died_before
        children.signal_all(signal.SIGTERM)
        wait_until(children.all_gone, orders, group_grace_s)
        if orderly and not orders.killing:
            say({"stubborn": children.alive()})
    deadline = time.monotonic() + KILL_WAIT_S
    while (most := but_trackers(children.alive())) and time.monotonic() < deadline:
        for pid in most:
            send(pid, signal.SIGKILL)
        orders.wait(0.02)
    tidied = time.monotonic() + TRACKER_S
    while children.alive() and time.monotonic() < tidied:
        orders.wait(0.02)
    while children.alive() and time.monotonic() < deadline:
        children.signal_all(signal.SIGKILL)  # again and again: a dying parent may just have forked
        orders.wait(0.02)
    return children.alive()


def clear(folder: str | None) -> None:
    """Remove the server's folder for sockets, which vLLM leaves behind; a folder in it would stay."""
    if not folder:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118
        os.rmdir(folder)  # noqa: PTH106


def wait_until(gone: Callable[[], bool], orders: Orders, grace_s: float) -> None:
    deadline = time.monotonic() + grace_s
    while not gone() and not orders.killing and (left_s := deadline - time.monotonic()) > 0:
        orders.wait(min(left_s, 0.05))  # a grandchild's end does not wake the guard, hence the short turns


def main(server: Callable[[dict], object] = execute) -> object:
    """Guard one server to its end; returns None then. `server` makes a server of the forked child; in the child, what it
    returns is returned (target/warm_serve.py forks what others execute)."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    orders = Orders()
    order = orders.first()
    if order is None:
        return None
    pid = start(order)
    if pid == 0:
        orders.close()
        return server(order)
    children = Children(pid)
    say({"pid": children.leader})
    while not orders.stopping:
        children.reap()
        orders.wait(None)
    left = stop(children, orders, order["leader_grace_s"], order["group_grace_s"])
    clear(order.get("scratch"))
    say({"left": left})
    return None


if __name__ == "__main__":
    main()
