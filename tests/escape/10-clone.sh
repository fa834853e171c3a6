#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 10: clone with each namespace flag; clone3 with each, whose flags no filter can see
# MUST: EPERM; ENOSYS; plain threads still work
# CONTROL: seccomp,nested-userns

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- namespaces clone
