#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 11: setns to /proc/self/ns/*, to pid 1's, and by pidfd
# MUST: EPERM
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- namespaces setns
