#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 3: open "/proc/self/root/../.." and the other links of /proc that jump to a directory
# MUST: all of them stay in the sandbox's own root
# CONTROL: outside
#
# No control of ours can be left out to see this succeed: whatever a link of /proc leads to, the kernel stops ".." at
# the root of the process that asks. What shows that the attack is a real one is running it outside.

# shellcheck source=/dev/null
. "$TESTLIB"

echo secret >"$TMP/secret"
judge attack -- roots proc-links "$TMP/secret"
