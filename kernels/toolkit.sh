#!/usr/bin/env bash
# Puts nvcc and its headers on a machine that has none, from the wheels that NVIDIA publishes:
# toolkit.sh [folder], by default target/cuda. Needs python3 with pip, and a C++ compiler.
set -euo pipefail
folder=${1:-$(dirname "$0")/../target/cuda}
mkdir -p "$folder"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --target "$wheels" \
    "cuda-toolkit[nvcc,cudart,cccl,crt]==13.0.*"
cp -r "$wheels"/nvidia/cu13/. "$folder"/
# The wheels carry versioned library names only.
for library in "$folder"/lib/*.so.*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
done
ln -sfn lib "$folder/lib64"
chmod +x "$folder"/bin/* "$folder"/nvvm/bin/*
"$folder/bin/nvcc" --version | tail -n 2
