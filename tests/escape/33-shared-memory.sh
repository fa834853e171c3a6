#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 33: reach the host's SysV shared memory, semaphores and queues, its POSIX queues and /dev/shm by name
# MUST: none is there
# CONTROL: ns-ipc

# shellcheck source=/dev/null
. "$TESTLIB"

key=$((0x0ca00000 + $$))
trap '"$PROBES/ipc" remove $key >/dev/null' EXIT
"$PROBES/ipc" make $key >/dev/null
judge attack -- ipc find $key
