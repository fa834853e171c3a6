#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 42: be stopped, traced or waiting in vfork when the end comes
# MUST: all gone when Carrel has returned
# CONTROL: ns-pid

# shellcheck source=/dev/null
. "$TESTLIB"

mark=linger-$$-$RANDOM
cp "$PROBES/linger" "$WS/linger"

check() {
    local left
    left=$(marked "$mark")
    [ -n "$left" ] || return 0
    # shellcheck disable=SC2086  # one word for each process
    kill -KILL $left 2>/dev/null || true
    escaped "$1, these lived on: ${left//$'\n'/ }"
}

inside -- /linger stuck "$mark"
check "after the command's end"
status=0
inside --timeout 1s -- /linger stuck-and-stay "$mark" || status=$?
check "after the deadline"
[ $status = 124 ] || unclear "the deadline ended it with $status"
