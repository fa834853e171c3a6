#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 26: run a setuid binary and one with file capabilities, both put into the workspace
# MUST: no privilege is gained
# CONTROL: nosuid,no-new-privs,caps
# CONTROL-root: nosuid,no-new-privs,caps,landlock,seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

for kind in plain setuid setgid caps; do
    cp "$PROBES/privileges" "$WS/$kind"
done
chmod 4755 "$WS/setuid"
chmod 2755 "$WS/setgid"
# Capabilities that count in user namespaces of the caller: only their owner may give a file such ones.
give_caps() {
    /usr/bin/python3 -c '
import os, struct, sys
version_2_effective = 0x02000001
os.setxattr(sys.argv[1], "security.capability", struct.pack("<5I", version_2_effective, 0xffffffff, 0, 0xff, 0))' "$1"
}
if [ "$IDENT" = root ]; then
    give_caps "$WS/caps"
else
    unshare --user --map-root-user /bin/bash -c "$(declare -f give_caps); give_caps '$WS/caps'"
fi

all() {
    local kind user
    for kind in setuid setgid caps; do
        for user in user root; do
            inside --user $user -- /plain "/$kind" || [ $? = 1 ] || return
        done
    done
}
judge all
