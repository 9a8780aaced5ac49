"""Initialises CUDA where it is told to, in a module that cannot be done without."""

import os

import torch

if os.environ.get("FAKE_IMPORT") == "cuda_everywhere":
    torch.cuda.initialise()
