#!/usr/bin/env bash
# A Python environment of the given packages, and of what was the newest below them when they were
# pinned. Usage: install.sh FOLDER PIP_ARGUMENTS...
set -euo pipefail
folder=$1
shift
if [ ! -x "$folder/bin/uv" ]; then
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check uv==0.9.13
fi
"$folder/bin/uv" pip install --quiet --python "$folder/bin/python" --exclude-newer 2026-11-30 "$@"
