#!/usr/bin/env bash
# What takes minutes: more clients, made-up requests with all of their phases, and the page at / in a browser,
# which makes docs/page.png. Takes the browser at $CHROMIUM, else installs one.
# Usage: by_hand.sh BINARY
set -euo pipefail
if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
. "$here/server.sh" "$1"

venv=$here/../../target/clients/venv
"$here/install.sh" "$venv" -r "$here/requirements.txt" -r "$here/requirements_by_hand.txt"
[ -x "${CHROMIUM:-}" ] || "$venv/bin/playwright" install --with-deps chromium
"$venv/bin/python" "$here/check_langchain_anthropic.py" "$url"
"$venv/bin/python" "$here/check_openai_agents.py" "$url/v1"
"$venv/bin/python" "$here/browser.py" "$url" "$here/../../docs/page.png"
"$here/schemathesis.sh" "$venv/bin/schemathesis" "$binary" examples,coverage,fuzzing
