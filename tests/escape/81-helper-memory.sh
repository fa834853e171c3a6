#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 81: open the memory, environment, descriptors and root of pid 1 and of Carrel's helpers; rewrite our id maps
# MUST: EPERM, EACCES or ENOENT
# CONTROL-root: caps,ids
# CONTROL-user: dumpable

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- helpers memory
