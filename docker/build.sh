#!/usr/bin/env bash
# Builds what the image holds: build.sh FOLDER [cargo arguments, such as --features cuda].
# The Dockerfile runs it, and it runs as well without Docker. Puts the binary into FOLDER and checks
# what the image relies on: it starts on a machine without a GPU and links no CUDA library.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift

cargo build --release --locked "$@"
mkdir -p "$folder"
install -m 755 "${CARGO_TARGET_DIR:-target}/release/volley" "$folder/volley"
strip "$folder/volley"

"$folder/volley" --version
libraries=$(ldd "$folder/volley")
if grep -E 'not found|libcu|libnv|libnccl' <<<"$libraries"; then
    echo "the binary must start where CUDA is not installed" >&2
    exit 1
fi
