#!/usr/bin/env bash
# Seven minutes on a machine with one data-centre GPU: speeds, training, BLEU, tests. See gpu.py beside this.
#     bash tests/benchmarks/gpu.sh DATA OUT [WHEELS]
# The machine needs what pyproject.toml asks for but `datasets`, with PyTorch for CUDA, and pytest. What it lacks, or has in too
# old a version, is taken from the wheels in the folder WHEELS, without a network and without a trace; without them it is told,
# with the command that fetches them elsewhere. For an image with PyTorch 2.11 (CUDA 13) and Python 3.12 the wheels were
# pydantic 2.14.4, pydantic_core 2.50.5, annotated_types 0.8.0, sentencex 1.0.32, sentencepiece 0.2.3 and typer 0.29.2.
# PYTHON names another interpreter than python3.
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,8s/^# //p' "$0" >&2
    exit 2
fi
data=$1 out=$(realpath -m "$2") wheels=${3:+$(realpath "$3")} python=${PYTHON:-python3}
[ "$data" = demo ] || data=$(realpath "$data")
cd "$(dirname "$0")/../.."
"$python" -c 'import sys; sys.exit("gpu.sh: Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [ -n "$wheels" ]; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl
fi
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
"$python" tests/benchmarks/gpu_needs.py
"$python" -m tests.benchmarks.gpu "$data" "$out"
