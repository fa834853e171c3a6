#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 36: make processes, then threads, without end
# MUST: EAGAIN at the limit, and the run goes on; who never stops trying is ended, with 121; nothing is left
# CONTROL: pids
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

for kind in fork threads; do
    status=0
    output=$(attack --pids 20 --timeout 20s -- bomb $kind 20 2>&1) || status=$?
    echo "$output"
    case $output in
        *ESCAPED:*) exit 1 ;;
        *contained) ;;
        *) unclear "$kind ended with status $status" ;;
    esac
done

# Not with the control left out: a storm without limits is the host's end.
weak && unclear "neither got beyond the limit"
status=0
mark=storm-$$-$RANDOM
inside --pids 20 --timeout 60s -- /bomb storm $mark || status=$?
[ "$status" = 121 ] || unclear "the storm ended with status $status"
none_left() { [ -z "$(marked $mark)" ]; }
eventually none_left || escaped "processes of the storm are left"
