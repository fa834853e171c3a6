#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 30: open /dev/kmsg, kvm, fuse, loop-control, net/tun, a disk
# MUST: absent, and no device but the harmless few
# CONTROL: own-dev

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- devices find
