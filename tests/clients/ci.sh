#!/usr/bin/env bash
# Clients against the demo pair, unmodified. Python, Node and made-up requests go side by side, each
# against a server of its own. What they need stays in target/clients. Usage: ci.sh BINARY
set -euo pipefail
if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
installed=$here/../../target/clients
mkdir -p "$installed"
python=$installed/venv/bin/python

install_python() {
    "$here/install.sh" "$installed/venv" -r "$here/requirements.txt"
}

install_node() {
    cp "$here/package.json" "$here"/*.mjs "$installed"
    (cd "$installed" && npm install --no-audit --no-fund --loglevel=error)
}

python_clients() (
    . "$here/server.sh" "$binary"
    "$python" "$here/openai_python.py" "$url/v1"
    "$python" "$here/anthropic_python.py" "$url"
    for client in langchain_openai litellm pydantic_ai; do
        "$python" "$here/check_$client.py" "$url/v1"
    done
)

node_clients() (
    . "$here/server.sh" "$binary"
    node "$installed/openai_node.mjs" "$url/v1"
    node "$installed/ai_sdk.mjs" "$url/v1"
)

made_up_requests() {
    "$here/schemathesis.sh" "$installed/venv/bin/schemathesis" "$binary" examples,fuzzing
}

# Runs functions side by side; fails if one of them does.
together() {
    local running=() failed=0
    for task in "$@"; do
        "$task" &
        running+=($!)
    done
    for id in "${running[@]}"; do
        wait "$id" || failed=1
    done
    return "$failed"
}

together install_python install_node
echo "installed in $SECONDS s"
together python_clients node_clients made_up_requests
echo "all clients passed in $SECONDS s"
