#!/usr/bin/env bash
# Clients against the demo pair, unmodified: those that install in seconds.
# Usage: ci.sh BINARY
set -euo pipefail
if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
. "$here/server.sh" "$1"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
cp "$here/package.json" "$here"/*.mjs "$work"
(cd "$work" && npm install --no-audit --no-fund --loglevel=error)

"$work/venv/bin/python" "$here/openai_python.py" "$url/v1"
"$work/venv/bin/python" "$here/anthropic_python.py" "$url"
node "$work/openai_node.mjs" "$url/v1"
node "$work/ai_sdk.mjs" "$url/v1"
"$here/schemathesis.sh" "$work/venv/bin/schemathesis" "$binary" examples,fuzzing
