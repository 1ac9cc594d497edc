#!/usr/bin/env bash
# campaigns.sh PYTHON [ARGUMENTS OF PYTEST]
# Runs the campaigns: first all but those marked "alone", then these, which disturb each other little.
set -uo pipefail
python=$1
shift

nothing=5 # pytest's status where no test was chosen: "-k soak" chooses none of the first
status=$nothing

run() {
    "$python" -m pytest --timeout 3600 -v "$@"
    local ended=$?
    [ "$ended" -eq 2 ] && exit 2 # interrupted
    if [ "$ended" -ne "$nothing" ] && { [ "$status" -eq "$nothing" ] || [ "$ended" -ne 0 ]; }; then
        status=$ended
    fi
}

run -n auto -m "campaign and not alone" "$@"
run -n auto -m "campaign and alone" "$@"
exit "$status"
