#!/bin/sh
# Makes the parity cases of this folder again, in throw-away virtual environments (several gigabytes of downloads, CPU only).
# With arguments only those scripts: ./make.sh make_transformer.py
# Environments that exist are used instead: PARITY_VENV, and PARITY_VENV_TAY2021 for make_tay2021.py. LRA_2021 is a checkout of the 2021 code.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Only its Python files are wanted: its extensions do not build on current PyTorch.
fast_transformers=pytorch-fast-transformers-0.4.0
commit=cd31e5c6b8e5bceabd28de2d2afb23f7ae5d36d8

torch_environment() {
    venv=${PARITY_VENV:-}
    if [ -z "$venv" ]; then
        venv=$scratch/torch
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --no-deps -r "$here/requirements.txt"
        # wheel and packaging are what building pytorch-fast-transformers asks for.
        "$venv/bin/pip" install --quiet "torch==2.2.2" setuptools wheel packaging
        "$venv/bin/pip" download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$venv/src" \
            pytorch-fast-transformers==0.4.0
        tar -xzf "$venv/src/$fast_transformers.tar.gz" -C "$venv/src"
    fi
    path=$venv/src/$fast_transformers
}

tay2021_environment() {
    venv=${PARITY_VENV_TAY2021:-}
    if [ -z "$venv" ]; then
        venv=$scratch/tay2021
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet -r "$here/requirements-tay2021.txt"
    fi
    path=${LRA_2021:-}
    if [ -z "$path" ]; then
        path=$scratch/long-range-arena
        git clone --quiet https://github.com/google-research/long-range-arena "$path"
        git -C "$path" checkout --quiet "$commit"
    fi
    LRA_2021_COMMIT=$(git -C "$path" rev-parse --short=7 HEAD)
    export LRA_2021_COMMIT
}

cd "$here"
[ $# -gt 0 ] || set -- make_*.py
made=
for script in "$@"; do
    echo "$script"
    case $script in
        make_tay2021.py) kind=tay2021 ;;
        *) kind=torch ;;
    esac
    if [ "$made" != $kind ]; then
        "${kind}_environment"
        made=$kind
    fi
    PYTHONPATH="$path" PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES= "$venv/bin/python" "$script"
done
