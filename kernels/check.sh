#!/usr/bin/env bash
# Compiles every kernel for every target with warnings as errors, and fails on spilled registers,
# stack frames or other local memory. (More shared memory than an Ampere card has fails to compile.)
# Uses NVCC, CUDA_HOME, target/cuda or PATH. Prints registers per kernel and target.
set -euo pipefail
cd "$(dirname "$0")"
for nvcc in "${NVCC:-}" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" ../target/cuda/bin/nvcc "$(command -v nvcc || true)"; do
    [[ -n $nvcc && -x $nvcc ]] && break
done
[[ -n $nvcc && -x $nvcc ]] || { echo "nvcc was not found: run kernels/toolkit.sh" >&2; exit 1; }

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
check() {
    local name
    name=$(basename "$1" .cu)
    "$nvcc" -std=c++17 -O3 -fatbin -Werror all-warnings -Xptxas=-v \
        -gencode arch=compute_80,code=compute_80 -gencode arch=compute_80,code=sm_80 \
        -gencode arch=compute_86,code=sm_86 -gencode arch=compute_90a,code=sm_90a \
        -o "$out/$name.fatbin" "$1" >"$out/$name.log" 2>&1 || { cat "$out/$name.log"; return 1; }
}
export -f check
export nvcc out
printf '%s\n' cuda/*.cu | xargs -P "$(nproc)" -I{} bash -c 'check {}'

awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; target = part[4] }
    /bytes stack frame/ {
        if ($1 + $5 + $9 > 0) { print kernel " (" target "): " $0; bad = 1 }
    }
    /Used [0-9]+ registers/ && kernel !~ /_info$/ { printf "%-24s %-8s %3d registers\n", kernel, target, $5 }
    END { exit bad }
' "$out"/*.log
