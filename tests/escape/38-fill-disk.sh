#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 38: fill the disk by writing, fallocate, empty files, deep directories, hard links, attributes, and by files that
#            nobody can list: deleted, mapped, on their way through a socket, in a directory shut to its own owner
# MUST: end before all is taken, with the disk limit as the reason
# CONTROL: disk
# TIMEOUT: 300
# TAKES: 60

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/fill" "$TMP/fill"
tried=0
through=()
much=160 hold=20               # s, for who comes late on a busy machine: it ends when he does
[ -z "${LONG:-}" ] || much=320 # MiB: ten times what is allowed
! weak || hold=0               # nobody comes

# fills WAY AMOUNT [option…]: with 32 MiB allowed, and 8192 names. What is taken is far beyond either.
fills() {
    local way=$1 amount=$2 status=0 output
    shift 2
    tried=$((tried + 1))
    chmod -R u+rwx "$WS"
    rm -rf "$WS"
    mkdir "$WS"
    cp "$TMP/fill" "$WS/fill"
    output=$(inside --disk 32M "$@" -- /fill "$way" "$amount" "$hold" 2>&1) || status=$?
    echo "$way: status $status: ${output//$'\n'/ | }"
    case $status:$output in
        *"took all"*) through+=("$way") ;;
        123:*) ;;
        *) unclear "$way ended with $status" ;;
    esac
}

fills write "$much"
fills fallocate "$much"
fills empty-files 25
fills deep-directories 12
fills hard-links $((much / 4))
fills attributes $((much / 2)) --files 1000000
fills deleted-files "$much"
fills mapped-files "$much"
fills orphaned-threads "$much"
fills sent-files "$much"
fills shut-directories "$much"

if weak && [ ${#through[@]} != $tried ]; then
    unclear "without the control only these got through: ${through[*]}"
fi
[ ${#through[@]} = 0 ] || escaped "nobody stopped: ${through[*]}"
echo contained
