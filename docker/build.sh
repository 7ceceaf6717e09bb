#!/usr/bin/env bash
# Builds what the image holds: build.sh FOLDER PROFILE [cargo arguments, such as --features cuda].
# The Dockerfile runs it for a release; any cargo profile will do. Needs no Docker. Puts the binary
# into FOLDER and checks what the image relies on: it starts on a machine without a GPU and links no
# CUDA library.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: $0 FOLDER PROFILE [cargo arguments]" >&2
    exit 2
fi
cd "$(dirname "$0")/.."
folder=$1 profile=$2
shift 2
case $profile in
dev) built=debug ;;
*) built=$profile ;;
esac

cargo build --profile "$profile" --locked "$@"
mkdir -p "$folder"
install -m 755 "${CARGO_TARGET_DIR:-target}/$built/volley" "$folder/volley"
strip "$folder/volley"

"$folder/volley" --version
libraries=$(ldd "$folder/volley")
if grep -E 'not found|libcu|libnv|libnccl' <<<"$libraries"; then
    echo "the binary must start where CUDA is not installed" >&2
    exit 1
fi
