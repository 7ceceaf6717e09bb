#!/usr/bin/env bash
# Requests made up from /openapi.json: none may give a server error.
# A short context keeps the answers short. Usage: schemathesis.sh SCHEMATHESIS BINARY PHASES
set -euo pipefail
schemathesis=$(realpath -s "$1")
phases=$3
. "$(dirname "$0")/server.sh" "$2" --max-model-len 96 --max-num-queued-reqs 10000
cd "$work" # it leaves its notes where it runs
"$schemathesis" run "$url/openapi.json" --url "$url" --checks not_a_server_error \
    --phases "$phases" --max-examples 30 --max-failures 5 --seed 7 \
    --suppress-health-check all --request-timeout 60 --no-color
