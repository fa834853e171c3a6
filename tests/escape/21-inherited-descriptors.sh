#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 21: look through the descriptors 3 to 65535 for one that the caller left open (CVE-2024-21626)
# MUST: none is open, and the first three are pipes, not the caller's own files
# INV-6
# CONTROL: close-fds

# shellcheck source=/dev/null
. "$TESTLIB"

echo secret >"$TMP/secret"
exec 5</ 9<"$TMP/secret" 63>>"$TMP/log" 200</proc/self/ns/mnt
judge attack -- fds <"$TMP/secret"
