"""Programs for the contract of processes: `python -m program NAME ...`."""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from multiprocessing.shared_memory import SharedMemory


def say(*words):
    """A line in one write: print's are several here, and those of parent and children would mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def files():
    """Open descriptors and what they are; that of this very listing is closed by then."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return found


def facts():
    """What a process knows of itself."""
    ignored = [number for number in (2, 15, 1, 17, 13) if signal.getsignal(number) is signal.SIG_IGN]
    return {
        "argv": sys.argv[1:],
        "argv0": os.path.basename(sys.argv[0]),
        "main": sys.modules["__main__"].__spec__.name,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "session": os.getsid(0) == os.getpid() == os.getpgid(0),
        "files": files(),
        "ignored": ignored,
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "wakeup": signal.set_wakeup_fd(-1),
        "path": sys.path,
    }


def fork_child(detached=False, deaf=False):
    if os.fork() == 0:
        if detached:
            os.setsid()
            if os.fork():
                os._exit(0)
        if deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("child", os.getpid())
        time.sleep(600)
        os._exit(0)


def listen(port):
    """What a child has of a socket with that port, and of another one."""
    served, other = socket.socket(), socket.socket()
    served.bind(("127.0.0.1", port))
    other.bind(("127.0.0.1", 0))
    if os.fork() == 0:
        mine = files()
        say(json.dumps([mine[str(one.fileno())].partition(":")[0] for one in (served, other)]))
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    name = sys.argv[1]
    say("started", os.getpid())
    if name == "facts":
        say(json.dumps(facts()))
    elif name == "exit":
        sys.exit(int(sys.argv[2]))
    elif name == "raise":
        raise ValueError("on purpose")
    elif name == "signal":
        os.kill(os.getpid(), int(sys.argv[2]))
        time.sleep(600)
    elif name == "family":
        fork_child()
        fork_child(detached=True, deaf=True)
        time.sleep(600)
    elif name == "listen":
        listen(int(sys.argv[3]))
    elif name == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("deaf")
        time.sleep(600)
    elif name == "shared":
        memory = SharedMemory(create=True, size=1000)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        say("shared", memory.name)
        fork_child()  # it holds the resource tracker up, as an engine does
        time.sleep(600)
    elif name == "spin":
        while True:
            pass
    elif name == "sleep":
        time.sleep(600)
