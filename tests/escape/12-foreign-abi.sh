#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 12: i386 calls by int 0x80 (socketcall, mount) and x32 numbers, which mean other calls to the filter
# MUST: killed with SIGSYS
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

[ "$(uname -m)" = x86_64 ] || skip "i386 and x32 calls exist on x86-64 only"
judge attack -- foreign_abi
