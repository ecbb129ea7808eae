#!/bin/sh
# Makes the parity cases of this folder again, in a throw-away virtual environment (several gigabytes of downloads, CPU only).
# With arguments only those scripts: ./make.sh make_transformer.py
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${PARITY_VENV:-}
# Only its Python files are wanted: its extensions do not build on current PyTorch.
fast_transformers=pytorch-fast-transformers-0.4.0
if [ -z "$venv" ]; then
    venv=$(mktemp -d)
    trap 'rm -rf "$venv"' EXIT
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --no-deps -r "$here/requirements.txt"
    "$venv/bin/pip" install --quiet "torch==2.2.2" setuptools
    "$venv/bin/pip" download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$venv/src" \
        pytorch-fast-transformers==0.4.0
    tar -xzf "$venv/src/$fast_transformers.tar.gz" -C "$venv/src"
fi
cd "$here"
[ $# -gt 0 ] || set -- make_*.py
for script in "$@"; do
    echo "$script"
    PYTHONPATH="$venv/src/$fast_transformers" PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES= \
        "$venv/bin/python" "$script"
done
