#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 5: mount a tmpfs, bind, remount read-write
# MUST: EPERM
# CONTROL: seccomp,caps
# CONTROL-root: seccomp,caps,ids

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- mounts mount
