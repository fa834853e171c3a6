#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 15: open and connect through io_uring, which no filter sees
# MUST: ENOSYS for all three of its calls
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- doors io-uring
