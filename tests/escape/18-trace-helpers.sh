#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 18: trace pid 1 and Carrel's helpers: attach, seize, read and write their memory, take their descriptors
# MUST: EPERM, also where one's own processes may be traced
# CONTROL-root: caps,ids
# CONTROL-user: dumpable

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- helpers trace
