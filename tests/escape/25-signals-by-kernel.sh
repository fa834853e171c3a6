#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 25: have the kernel send a signal to the host or to pid 1: F_SETOWN and SIGIO, timer_create for another thread
# MUST: no effect outside, not even on a process that has the sandbox's own uid on the host; pid 1 lives on
# CONTROL: ns-pid,landlock

# shellcheck source=/dev/null
. "$TESTLIB"

judge on_victim signals by-kernel
