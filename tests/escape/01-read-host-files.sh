#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 1: read the host's /etc/shadow, /root, and its /etc through pid 1's root
# MUST: ENOENT or EACCES, never a byte of the host's own files
# CONTROL: own-etc

# shellcheck source=/dev/null
. "$TESTLIB"

echo "host secret $TMP" >"$TMP/secret"
chmod 644 "$TMP/secret"
paths=("$TMP/secret" /root /root/.bashrc /root/.profile /root/.ssh /home /var/log /var/lib/dpkg/status)
for file in shadow shadow- gshadow passwd group hostname machine-id fstab crontab ssh/ssh_host_ed25519_key sudoers; do
    paths+=("/etc/$file" "/proc/1/root/etc/$file" "/proc/self/root/etc/$file")
done

# Whatever can be read inside must differ from what the host has under that name.
for path in "${paths[@]}"; do
    inside -- /bin/cat "$path" >"$TMP/seen" 2>"$TMP/why" || [ -s "$TMP/why" ] || unclear "no answer for $path"
    grep -q "^carrel:" "$TMP/why" && unclear "$(cat "$TMP/why")"
    [ -s "$TMP/seen" ] || continue
    cmp -s "$TMP/seen" "${path#/proc/*/root}" && escaped "read the host's $path"
done
inside -- /bin/ls -A / >"$TMP/names"
for name in root home var boot srv mnt; do
    grep -qx "$name" "$TMP/names" && escaped "the host's /$name is in sight"
done
exit 0
