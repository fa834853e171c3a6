#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 47: exchange the workspace's usr, proc, etc with links and full directories in a loop while 100 sandboxes start
# MUST: no mount outside the tree, nothing made behind the links, no start in which /proc lacks its masks
# INV-3
# CONTROL: mountpoint-check
# TIMEOUT: 180

# shellcheck source=/dev/null
. "$TESTLIB"

victim=$TMP/victim
mkdir "$victim"
inside -- /bin/true # makes the mountpoints
mkdir "$WS/elsewhere" "$WS/.other-etc"
echo root::0:0:root:/:/bin/sh >"$WS/.other-etc/passwd"
ln -s "$victim" "$WS/.other-usr"
ln -s elsewhere "$WS/.other-proc"

/usr/bin/python3 - "$WS" <<'END' &
import ctypes, os, random, sys, time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, EXCHANGE = -100, 2
os.chdir(sys.argv[1])
while True:
    name = random.choice((b"usr", b"proc", b"etc"))
    for _ in ("away", "back"):
        libc.renameat2(AT_FDCWD, name, AT_FDCWD, b".other-" + name, EXCHANGE)
        time.sleep(random.random() * 0.004)
END
swapper=$!
trap 'kill $swapper 2>/dev/null || true' EXIT

cp "$PROBES/masks" "$WS/masks"
grep -v " $TMP" /proc/self/mountinfo >"$TMP/mounts"
started=0 refused=0
for _ in {1..100}; do
    status=0
    inside -- /masks .other- >"$TMP/out" 2>&1 || status=$?
    case $status in
        0) started=$((started + 1)) ;;
        125) refused=$((refused + 1)) ;;
        *) cat "$TMP/out" && escaped "a start ended with $status" ;;
    esac
    [ -z "$(ls -A "$victim")" ] || escaped "something was made behind the link: $(ls -A "$victim")"
    grep " $TMP" /proc/self/mountinfo && escaped "a mount in the host's own table"
done
echo "$started started whole, $refused refused"
[ $started -gt 0 ] || unclear "not one start came through"
[ $refused -gt 0 ] || unclear "no start met the attack"
