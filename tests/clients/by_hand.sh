#!/usr/bin/env bash
# Clients against the demo pair, unmodified: those that take minutes to install, so not in CI.
# The browser test makes docs/page.png. Usage: by_hand.sh BINARY
set -euo pipefail
if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
. "$here/server.sh" "$1"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" \
    -r "$here/requirements_by_hand.txt"
for client in langchain_openai litellm pydantic_ai; do
    "$work/venv/bin/python" "$here/check_$client.py" "$url/v1"
done
"$here/schemathesis.sh" "$work/venv/bin/schemathesis" "$binary" examples,coverage,fuzzing
[ -x "${CHROMIUM:-}" ] || "$work/venv/bin/playwright" install --with-deps chromium
"$work/venv/bin/python" "$here/browser.py" "$url" "$here/../../docs/page.png"
