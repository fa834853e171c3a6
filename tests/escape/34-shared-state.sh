#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 34: sethostname, settimeofday, adjtimex, reboot
# MUST: EPERM
# CONTROL: seccomp,caps

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- system state
