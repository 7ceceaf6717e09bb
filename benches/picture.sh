#!/usr/bin/env bash
# PICTURE.svg -> PICTURE.png, twice its size, by Chromium ($CHROMIUM, else the one on the path).
set -euo pipefail
svg=$(realpath "$1")
size() { grep -o -m1 " $1=\"[0-9]*\"" "$svg" | head -1 | tr -dc 0-9; }
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" \
  --force-device-scale-factor=2 --window-size="$(size width),$(size height)" \
  --screenshot="${svg%.svg}.png" "file://$svg" 2>/dev/null
echo "${svg%.svg}.png"
