#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 35: nice -20, SCHED_FIFO, real-time io, mlockall
# MUST: EPERM, or ENOMEM for the locked memory
# CONTROL: rlimits

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- system priority
