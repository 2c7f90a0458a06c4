#!/usr/bin/env bash
# Six minutes on a machine with one data-centre GPU: tests, speeds, two minutes of training, BLEU. See gpu.py beside this.
#     bash tests/benchmarks/gpu.sh DATA OUT [WHEELS]
# The machine needs PyTorch 2.11 or newer for CUDA with sentencepiece, sacrebleu, typer, rich, safetensors, numpy and pytest.
# What else it lacks (pydantic, say) is installed from the wheels in the folder WHEELS, without a network.
set -euo pipefail
data=$(realpath "$1") out=$(realpath -m "$2") wheels=${3:+$(realpath "$3")}
cd "$(dirname "$0")/../.."
if [ -n "${wheels:-}" ]; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target "$out/site" "$wheels"/*.whl
    export PYTHONPATH="$out/site${PYTHONPATH:+:$PYTHONPATH}"
fi
exec python3 -m tests.benchmarks.gpu "$data" "$out"
