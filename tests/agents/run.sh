#!/usr/bin/env bash
# Coding agents against volley, headless, in a network namespace with nothing but loopback: each
# says hello to the demo pair, then works through a tool loop of recorded answers. Takes about ten
# minutes, and root or user namespaces; not in CI.
# Usage: run.sh BINARY [AGENT[:hello|:tools]...]
set -euo pipefail
if [ $# -lt 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 BINARY [AGENT...]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
shift
work=${AGENTS_FOLDER:-$(mktemp -d)}
[ -n "${AGENTS_FOLDER:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work/packages"
cp "$here/package.json" "$work/packages"
(
    cd "$work/packages"
    npm install --no-audit --no-fund --loglevel=error
    # These fetch nothing: they put the binary of this platform in its place.
    (cd node_modules/@anthropic-ai/claude-code && node install.cjs)
    (cd node_modules/opencode-ai && node postinstall.mjs)
)
as_root=(unshare --net)
[ "$(id -u)" = 0 ] || as_root=(unshare --net --map-root-user)
"${as_root[@]}" bash -c 'ip link set lo up && exec python3 "$@"' - \
    "$here/drive.py" "$binary" "$work" "$@"
