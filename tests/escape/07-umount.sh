#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 7: unmount /usr and the masks of /proc, detach /
# MUST: EPERM
# CONTROL: seccomp,caps
# CONTROL-root: seccomp,caps,ids

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- mounts umount
