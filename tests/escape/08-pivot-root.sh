#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 8: pivot_root to a place of one's own
# MUST: EPERM
# CONTROL: seccomp,caps
# CONTROL-root: seccomp,caps,ids

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- mounts pivot
