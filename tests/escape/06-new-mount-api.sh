#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 6: fsopen, open_tree, move_mount, mount_setattr and number 467, which filters for mount() forget
# MUST: ENOSYS
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- mounts new-api
