#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 37: take memory that is not simply the program's own: tmpfs, memfds, SysV segments, full pipes and sockets,
# also such as no cgroup is charged for (netlink, datagrams held back)
# MUST: an error, or the end of the whole sandbox with 120; three times the limit is never held
# CONTROL: cgroup-memory
# TIMEOUT: 180
# TAKES: 50
# AS: root
# An ordinary user needs a cgroup of his own for it: tests/integration/limits_with_delegation.py

# shellcheck source=/dev/null
. "$TESTLIB"

through=0
for kind in heap tmpfs memfd shm pipes sockets tcp udp netlink corked; do
    status=0
    # The sizes of /tmp and the like keep tmpfs, not the cgroup: that control is left in.
    output=$(attack --memory 32M --timeout 60s -- bomb $kind 96 2>&1) || status=$?
    echo "$kind: status $status: $output"
    case $status:$output in
        *ESCAPED:*) through=$((through + 1)) ;;
        120:*) ;;
        0:*contained) ;;
        *) unclear "$kind ended with status $status" ;;
    esac
done
if weak; then # each must be able to fail, but for tmpfs
    [ $through = 9 ] || unclear "without a limit only $through kinds got what they wanted"
fi
[ $through = 0 ] || escaped "$through kinds of memory beyond the limit"
