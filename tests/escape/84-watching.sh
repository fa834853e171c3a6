#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 84: watch the host by fanotify on whole mounts; take all inotify instances, which count for the caller, too
# MUST: fanotify is EPERM; inotify works on the sandbox's own files, meets a limit, and the caller still gets instances
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

all() {
    attack -- watch all || return
    mkfifo "$TMP/orders"
    attack -- watch take <"$TMP/orders" >"$TMP/out" 2>&1 &
    exec 7>"$TMP/orders"
    eventually grep -q "^took" "$TMP/out" || unclear "the attack did not start"
    "$PROBES/watch" want
    exec 7>&-
    wait %1 || true
    cat "$TMP/out"
}
judge all
