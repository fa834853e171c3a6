#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 2: climb with cd .. a hundred times; chroot away from an open directory and climb from there; unmount /
# MUST: chroot is EPERM, and / stays /
# CONTROL: pivot,caps,seccomp
# CONTROL-root: pivot,caps,seccomp,ids

# shellcheck source=/dev/null
. "$TESTLIB"

echo secret >"$TMP/secret"
chmod 711 "$TMP"
chmod 644 "$TMP/secret"
judge attack -- roots chroot-escape "$TMP/secret"
