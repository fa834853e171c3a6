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

all_there() {
    [ "$(marked "$mark" | wc -l)" -ge 5 ]
}

inside -- /linger daemons "$mark"
gone "$mark" "after the command's end"

status=0
inside --timeout 1s -- /linger daemons-and-stay "$mark" || status=$?
gone "$mark" "after the deadline"
[ $status = 124 ] || unclear "the deadline ended it with $status"

# The first of a signal is the command's to handle, and these ignore it; the same again is meant for Carrel.
ends_by() { # SIGNAL
    kill -"$1" "$engine" 2>/dev/null
    sleep 0.1
    ! alive "$engine"
}

for signal in TERM HUP KILL; do
    "$CARREL" run --level ns --workspace "$WS" -- /linger daemons-and-stay "$mark" &
    engine=$!
    eventually all_there || unclear "the attack did not start"
    eventually ends_by $signal || unclear "SIG$signal does not end Carrel"
    wait $engine || true
    eventually none_left || gone "$mark" "after SIG$signal to Carrel"
done
