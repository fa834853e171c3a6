#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 45: crash, with the limit on core files raised as far as it goes, and at 1 and 0
# MUST: no core file, and no dump handed to a program of the host
# CONTROL: rlimits

# shellcheck source=/dev/null
. "$TESTLIB"

ulimit -c "$(ulimit -Hc)"
[ "$(ulimit -c)" != 0 ] || skip "the caller's own limit on core files is 0 and cannot be raised"
if find "$TMP" -name 'core*' | grep -q .; then unclear "there was one before"; fi
crash() {
    attack -- crash
    find "$TMP" -name 'core*' -printf 'ESCAPED: %p, %s bytes\n'
}
judge crash
