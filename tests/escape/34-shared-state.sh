#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 34: sethostname, settimeofday, adjtimex, reboot
# MUST: EPERM
# CONTROL: seccomp,caps
# CONTROL-root: seccomp,caps,ids

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- system state
