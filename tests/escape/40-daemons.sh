#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 40: ignore SIGTERM, leave the session by double fork, close or hold the pipes, and outlive the command
# MUST: all gone when Carrel has returned, and soon after Carrel itself was killed
# CONTROL: ns-pid

# shellcheck source=/dev/null
. "$TESTLIB"

mark=linger-$$-$RANDOM
cp "$PROBES/linger" "$WS/linger"

none_left() {
    [ -z "$(marked "$mark")" ]
}

check() {
    local left
    left=$(marked "$mark")
    [ -n "$left" ] || return 0
    # shellcheck disable=SC2086  # one word for each process
    kill -KILL $left 2>/dev/null || true
    escaped "$1, these lived on: ${left//$'\n'/ }"
}

all_there() {
    [ "$(marked "$mark" | wc -l)" -ge 5 ]
}

inside -- /linger daemons "$mark"
check "after the command's end"

status=0
inside --timeout 1s -- /linger daemons-and-stay "$mark" || status=$?
check "after the deadline"
[ $status = 124 ] || unclear "the deadline ended it with $status"

for signal in TERM HUP KILL; do
    "$CARREL" run --level ns --workspace "$WS" -- /linger daemons-and-stay "$mark" &
    engine=$!
    eventually all_there || unclear "the attack did not start"
    kill -$signal $engine
    wait $engine || true
    eventually none_left || check "after SIG$signal to Carrel"
done
