#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 24: kill every process in sight (kill -9 -1) and every id from 1 to 32768
# MUST: only the sandbox's own die, not even a process of the host that has the sandbox's own uid there
# CONTROL: ns-pid,landlock

# shellcheck source=/dev/null
. "$TESTLIB"

# Left without a pid namespace, killing everything would end whoever runs this test: one victim is enough there.
if weak; then judge on_victim signals kill-one; fi
judge on_victim signals kill-all
