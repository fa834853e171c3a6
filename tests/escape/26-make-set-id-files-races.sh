#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 26: have a directory swapped for a file while it gets a set-id bit: by name, by link, by descriptor, in memory
# MUST: no file on the host's disk has a set-id bit; directories may
# CONTROL: set-id-files
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

races() {
    attack -- setid races
    find "$WS" ! -type d -perm /6000 -printf 'ESCAPED: on the host %p has mode %m\n'
}
judge_disk() {
    local output
    output=$(races 2>&1) || true
    printf '%s\n' "$output"
}
judge judge_disk
