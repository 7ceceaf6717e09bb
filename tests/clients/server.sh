# Sourced: a volley binary on a free port for as long as the script runs.
# Sets `work`, a folder that goes with it, and `url`. Usage: . server.sh BINARY [FLAGS]

binary=$(realpath "$1")
shift
work=$(mktemp -d)
server=
end_server() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap end_server EXIT

: >"$work/banner"
"$binary" serve --port 0 --log-level error "$@" >"$work/banner" &
server=$!
url=
for _ in $(seq 600); do
    url=$(sed -n 's/^serving *\(http:[^ ]*\).*/\1/p' "$work/banner")
    [ -n "$url" ] && break
    kill -0 "$server" || exit 1
    sleep 0.1
done
