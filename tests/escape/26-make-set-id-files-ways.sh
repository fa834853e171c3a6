#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 26: make a set-id file, by every call that takes a mode, and by others
# MUST: no file on the host's disk has a set-id bit; directories may
# CONTROL: set-id-files
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

ways() {
    attack -- setid ways
    find "$WS" ! -type d -perm /6000 -printf 'ESCAPED: on the host %p has mode %m\n'
}
judge_disk() {
    local output
    output=$(ways 2>&1) || true
    printf '%s\n' "$output"
}
judge judge_disk
