#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 28: open core_pattern, sysrq-trigger, release_agent, uevent_helper for writing
# MUST: absent or read-only, whatever the uid
# CONTROL: proc-masks

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- sysfiles
