#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 11: setns to /proc/self/ns/*, to pid 1's, and by pidfd
# MUST: EPERM
# CONTROL: seccomp,caps
# CONTROL-root: seccomp,caps,ids

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- namespaces setns
