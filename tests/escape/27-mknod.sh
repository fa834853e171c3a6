#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 27: make nodes for memory (c 1:1), a disk (b 254:0), an overlay whiteout (c 0:0)
# MUST: EPERM for all three
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- devices make
