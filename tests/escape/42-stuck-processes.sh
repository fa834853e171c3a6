#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 42: be stopped, traced or waiting in vfork when the end comes
# MUST: all gone when Carrel has returned
# CONTROL: ns-pid

# shellcheck source=/dev/null
. "$TESTLIB"

mark=linger-$$-$RANDOM
cp "$PROBES/linger" "$WS/linger"

inside -- /linger stuck "$mark"
gone "$mark" "after the command's end"
status=0
inside --timeout 1s -- /linger stuck-and-stay "$mark" || status=$?
gone "$mark" "after the deadline"
[ $status = 124 ] || unclear "the deadline ended it with $status"
