#!/bin/bash
# Runs `advisor tune` with what `make tune` was given, through the environment, so that quotes and spaces survive:
# tune.sh VENV cpu|cuda. Without MODEL, a small model is made here first and served with random weights.
set -euo pipefail
venv=$1
engine=$2
# vLLM looks for its compilers and for ninja on PATH.
export PATH="$(cd "$venv/bin" && pwd):$PATH"

options=(--gpu "${GPU:-auto}")
serve_args=${SERVE_ARGS:-}
if [ -z "${MODEL:-}" ]; then
    MODEL=models/demo
    [ -e "$MODEL/config.json" ] || "$venv/bin/python" advisor/target/demo_model.py "$MODEL"
    serve_args="--load-format dummy --max-model-len 2048${serve_args:+ $serve_args}"
    WORKLOAD=${WORKLOAD:-tiny}
    # On two cores the search then gets some six launches and the confirmation six.
    BUDGET=${BUDGET:-11m}
fi
options+=(--model "$MODEL")
[ -z "$serve_args" ] || options+=(--serve-args "$serve_args")
# Unset, vLLM takes most of the memory for its cache on a processor, and a minute to clear it.
[ "$engine" != cpu ] || options+=(--env "VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}")
[ -z "${WORKLOAD:-}" ] || options+=(--workload "$WORKLOAD")
[ -z "${BUDGET:-}" ] || options+=(--budget "$BUDGET")
[ -z "${TRIALS:-}" ] || options+=(--trials "$TRIALS")
[ -z "${ENGINE_PYTHON:-}" ] || options+=(--engine-python "$ENGINE_PYTHON")
[ -z "${SPACE:-}" ] || options+=(--space "$SPACE")
[ -z "${STUDY:-}" ] || options+=(--study "$STUDY")
[ -z "${OUTPUT:-}" ] || options+=(--output "$OUTPUT")
for pair in ${SERVE_ENV:-}; do
    options+=(--env "$pair")
done
exec "$venv/bin/advisor" tune "${options[@]}"
