#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 38: fill the disk by writing, fallocate, empty files, deep directories, hard links, attributes, and by files that
#            nobody can list: deleted, mapped, on their way through a socket, in a directory shut to its own owner
# MUST: end before all is taken, with the disk limit as the reason
# CONTROL: disk
# TIMEOUT: 300

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/fill" "$TMP/fill"
tried=0
through=()

# fills WAY AMOUNT [option…]: with 32 MiB allowed, and 8192 names. What is taken is far beyond either.
fills() {
    local way=$1 amount=$2 status=0 output
    shift 2
    tried=$((tried + 1))
    chmod -R u+rwx "$WS"
    rm -rf "$WS"
    mkdir "$WS"
    cp "$TMP/fill" "$WS/fill"
    output=$(inside --disk 32M "$@" -- /fill "$way" "$amount" 2>&1) || status=$?
    echo "$way: status $status: ${output//$'\n'/ | }"
    case $status:$output in
        *"took all"*) through+=("$way") ;;
        123:*) ;;
        *) unclear "$way ended with $status" ;;
    esac
}

fills write 320
fills fallocate 320
fills empty-files 25
fills deep-directories 12
fills hard-links 40
fills attributes 160 --files 1000000
fills deleted-files 320
fills mapped-files 320
fills orphaned-threads 320
fills sent-files 320
fills shut-directories 320

if weak && [ ${#through[@]} != $tried ]; then
    unclear "without the control only these got through: ${through[*]}"
fi
[ ${#through[@]} = 0 ] || escaped "nobody stopped: ${through[*]}"
echo contained
