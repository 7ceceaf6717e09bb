#!/usr/bin/env bash
# Chats with a volley binary through openai-python, unmodified.
# Usage: run.sh BINARY
set -euo pipefail
if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
binary=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
server=
cleanup() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"

"$binary" serve --port 0 --log-level error >"$work/banner" &
server=$!
for _ in $(seq 600); do
    url=$(sed -n 's/^serving *\(http:[^ ]*\).*/\1/p' "$work/banner")
    [ -n "$url" ] && break
    kill -0 "$server" || exit 1
    sleep 0.1
done
"$work/venv/bin/python" "$here/check.py" "$url/v1"
