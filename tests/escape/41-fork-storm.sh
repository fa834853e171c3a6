#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 41: chains of processes that each live only long enough to make the next, so that every list of them is stale
# MUST: not one more is born once Carrel has returned
# CONTROL: ns-pid

# shellcheck source=/dev/null
. "$TESTLIB"

mark=linger-$$-$RANDOM
head -c 16 /dev/zero >"$WS/births"
cp "$PROBES/linger" "$WS/linger"

# Every process of the storm counts itself in a file they share.
births() {
    od -An -tu8 -N8 "$WS/births" | tr -d ' '
}

none_left() {
    [ -z "$(marked "$mark")" ]
}

all_ended() {
    marked "$mark" | xargs -r kill -KILL 2>/dev/null
    none_left
}

status=0
inside --timeout 1s -- /linger storm "$mark" || status=$?
at_end=$(births)
sleep 1
later=$(births)
echo "$at_end born until the end, $((later - at_end)) after it; status $status"
if [ "$later" != "$at_end" ]; then
    printf '\1' | dd of="$WS/births" bs=1 seek=8 conv=notrunc status=none # nobody can kill a storm one by one
    eventually all_ended || true
    escaped "the storm went on after Carrel had returned"
fi
none_left || escaped "the host still lists them"
[ "$status" = 124 ] || unclear "the deadline ended it with $status"
[ "$at_end" -gt 100 ] || unclear "there was no storm"
