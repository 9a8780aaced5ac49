"""Initialises CUDA or starts a process where it is told to, in a module that cannot be done without."""

import os
import subprocess

import torch

if os.environ.get("FAKE_IMPORT") == "cuda_everywhere":
    torch.cuda.initialise()
elif os.environ.get("FAKE_IMPORT") == "process_everywhere":
    CHILD = subprocess.Popen(["sleep", "30"])
