#!/bin/sh
# Prints which vLLM suits this machine: `cuda` where an NVIDIA GPU can be used, else `cpu`.
# The device file and not /proc/driver/nvidia decides: a container sees the latter even when it was given no GPU.
for device in /dev/nvidia[0-9]*; do
    [ -e "$device" ] && { echo cuda; exit 0; }
done
# Windows' Linux subsystem has no such device file, but a working nvidia-smi.
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    echo cuda
else
    echo cpu
fi
