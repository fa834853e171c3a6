#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 69: with the host's network, make Carrel wait for a connection that nobody answers, past the deadline
# MUST: the run ends at its deadline
# CONTROL: net-interrupt
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/outbound" "$WS/outbound"
tries=1
[ "$MODE" = real ] || tries=6 # a race is not won every time, least of all on a busy machine
for ((i = 0; i < tries; i++)); do
    status=0
    timeout -s KILL 15 "$PROBES/outbound" world "$CARREL" run --level ns --workspace "$WS" --net host --timeout 2s -- \
        /outbound race-flags >"$TMP/out" 2>&1 || status=$?
    cat "$TMP/out"
    grep -q racing "$TMP/out" || unclear "the attack did not start"
    case $status in
        124) echo contained ;;
        137) escaped "the run outlived its deadline" ;;
        *) unclear "ended with status $status" ;;
    esac
done
