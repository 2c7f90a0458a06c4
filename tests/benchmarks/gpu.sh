#!/usr/bin/env bash
# Six minutes on a machine with one data-centre GPU: tests, speeds, two minutes of training, BLEU. See gpu.py beside this.
#     bash tests/benchmarks/gpu.sh DATA OUT [WHEELS]
# The machine needs PyTorch 2.11 or newer for CUDA, and the modules named below; `datasets` is not needed. Those that it lacks
# (pydantic, say) are taken from the wheels for its Python in the folder WHEELS, without a network and without a trace.
# PYTHON names another interpreter than python3.
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
data=$1 out=$(realpath -m "$2") wheels=${3:+$(realpath "$3")} python=${PYTHON:-python3}
[ "$data" = demo ] || data=$(realpath "$data")
cd "$(dirname "$0")/../.."
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [ -n "$wheels" ]; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl
fi
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
"$python" - <<'END'
import importlib.util
import sys

modules = "torch numpy sentencepiece sacrebleu safetensors typer rich pydantic pydantic_core annotated_types pytest"
if missing := [name for name in modules.split() if not importlib.util.find_spec(name)]:
    sys.exit(f"gpu.sh: {sys.executable} lacks {', '.join(missing)}; name a folder with wheels of them as the third argument")
END
"$python" -m tests.benchmarks.gpu "$data" "$out"
