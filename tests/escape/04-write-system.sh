#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 4: write to /usr, /etc, /bin, /dev
# MUST: EROFS, not merely a lack of permission
# CONTROL: ro

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- mounts write
