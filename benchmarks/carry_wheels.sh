#!/bin/sh
# Wheels that benchmarks/gpu_media.py needs on a machine without a package index: simplejpeg, Pillow, av and what Tamis itself asks for.
#
#   sh benchmarks/carry_wheels.sh [VERSION OF THAT MACHINE'S PYTHON, default 3.12]
#
# Fills bench-data/wheels (some 50 MB, ignored by git). Take that folder and the kernels that were built here (src/tamis/kernels/built) to the
# machine as they are (first: .venv/bin/python -m tamis.kernels.compile --level x86-64-v4-vbmi2 --folder src/tamis/kernels/built/x86-64-v4-vbmi2,
# else they are compiled there), then
#
#   PYTHONPATH=src python3 benchmarks/gpu_media.py --wheels bench-data/wheels --out "$OUT" --total 570 --limit 240
#
# unpacks them into a temporary folder. The figures in $OUT/gpu_media.json become pages here: python benchmarks/gpu_media.py --page FILE
set -eu
cd "$(dirname "$0")/.."
python=".venv/bin/python"
test -x "$python" || python=python3
rm -rf bench-data/wheels
mkdir -p bench-data/wheels
"$python" -m pip download -q --no-deps --only-binary=:all: --python-version "${1:-3.12}" -d bench-data/wheels simplejpeg pillow av cloudpickle backports.zstd
du -sh bench-data/wheels
