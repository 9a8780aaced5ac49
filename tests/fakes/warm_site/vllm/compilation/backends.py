"""Does what none should before a fork: FAKE_IMPORT is cuda, cuda_later (at SIGUSR1), asks, thread, process, die, disk or slow."""

import os
import signal
import subprocess
import threading
import time

import torch

KIND = os.environ.get("FAKE_IMPORT", "")
if KIND == "cuda":
    torch.cuda.initialise()
elif KIND == "cuda_later":
    signal.signal(signal.SIGUSR1, lambda *_: torch.cuda.initialise())
elif KIND == "asks":
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132
elif KIND == "thread":
    threading.Thread(target=time.sleep, args=(600,), name="Pool", daemon=True).start()
elif KIND == "process":
    CHILD = subprocess.Popen(["sleep", "30"])
elif KIND == "die":
    os._exit(7)
elif KIND == "disk":
    time.sleep(2)
elif KIND == "slow":
    time.sleep(60)
