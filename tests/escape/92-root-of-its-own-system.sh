#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# BASE
# CONTROL: caps-of-root
# Attack: root inside, of a system of the workspace's own, takes what root has elsewhere: mounts, devices, set-id files
# that the host would honour, other processes, kernel settings, another root; and puts links where the next sandbox is built.
# shellcheck source=/dev/null
. "$TESTLIB"
mkdir -p "$TMP/w" "$TMP/o" && mkdir -m 700 "$TMP/l"
inside() { "$CARREL" run --workspace "$TMP/w" --system "$BASE:$TMP/l" "$@"; }

cat >"$TMP/w/attack.pl" <<'PERL'
# Each line that says GOT is an escape.
my ($fs, $mnt, $disk, $white, $once, $mine, $clock) = ("tmpfs", "/mnt", "/usr/disk", "/usr/white", "/usr/at-once", "mine", pack("qq", 1, 0));
sub got { print "GOT $_[0]\n" }
got("mount") if syscall(165, $fs, $mnt, $fs, 0, 0) == 0;
got("unshare") if syscall(272, 0x20000) == 0;
got("chroot") if chroot("/usr");
got("a device") if syscall(133, $disk, 0060666, (254 << 8)) == 0;
got("a whiteout") if syscall(133, $white, 0020666, 0) == 0;
got("the host name") if syscall(170, $mine, 4) == 0;
got("the clock") if syscall(227, 0, $clock) == 0;
got("pid 1") if kill(9, 1);
got("the memory of pid 1") if open(my $m, "+<", "/proc/1/mem");
got("an id beyond the range") if chown(65536, -1, "/usr");
got("a file of the host's ids") if grep { (lstat $_)[4] > 65535 } glob("/usr/*");
for my $what ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches") {
    got($what) if open(my $f, ">", $what);
}
open(my $f, ">", "/usr/setid"); print $f "x"; close $f;
chmod(04755, "/usr/setid"); got("a set-id file") if (stat "/usr/setid")[2] & 06000;
got("a set-id file at once") if syscall(257, -100, $once, 0101, 04755) >= 0;
open(my $s, "<", "/proc/self/status");
while (<$s>) { got("capabilities $1") if /^Cap(?:Eff|Bnd|Prm):\s+(\w+)/ && (hex($1) & ~0x800000db) }
print "attack ran\n";
PERL
got=$(inside --user root -- perl /attack.pl 2>&1) || true
case $got in *"attack ran"*) ;; *) unclear "the attack did not run: $got" ;; esac
case $got in *GOT*) escaped "root inside: $got" ;; esac

# What the user makes of what root has put there.
inside --user root -- sh -c 'cp /bin/sh /usr/bin/rootsh; chown 0:0 /usr/bin/rootsh; chmod 6755 /usr/bin/rootsh;
  setpriv --version >/dev/null; cp /bin/cat /usr/bin/kitten; : >/etc/ld.so.preload' >/dev/null 2>&1 || true
uid=$(inside -- rootsh -pc 'id -u' 2>&1) || true
[ "$uid" != 0 ] || escaped "a set-id shell made the user root inside"
caps=$(inside -- sh -c 'grep CapEff /proc/self/status') || true
case $caps in *0000000000000000) ;; *) escaped "the user has capabilities: $caps" ;; esac
found=$(find "$TMP/l" "$TMP/w" -perm /6000 -type f 2>/dev/null || true)
[ -z "$found" ] || escaped "set-id files on the host's disk: $found"
found=$(find "$TMP/l" "$TMP/w" \( -type b -o -type c \) ! -path '*/work/*' 2>/dev/null | while read -r f; do [ "$(stat -c %t:%T "$f")" = 0:0 ] || echo "$f"; done || true)
[ -z "$found" ] || escaped "devices on the host's disk: $found"

# Links for whoever builds the next one; a preloaded library and a shell of its own for whoever would run them.
echo "of the host" >"$TMP/o/secret"
inside --user root -- sh -c "rm -rf /usr/sbin && ln -s '$TMP/o' /usr/sbin; echo /usr/evil.so >/etc/ld.so.preload" >/dev/null 2>&1 || true
seen=$(inside -- cat /sbin/secret 2>&1) || true
case $seen in *"of the host"*) escaped "a link in the system led to the host: $seen" ;; esac
[ ! -e /etc/ld.so.preload ] || ! grep -q evil /etc/ld.so.preload || escaped "the host's ld.so.preload"

# Another layer on the same base has nothing of it.
mkdir -m 700 "$TMP/l2"
"$CARREL" run --workspace "$TMP/w" --system "$BASE:$TMP/l2" -- sh -c 'test ! -e /usr/bin/rootsh && test ! -s /etc/ld.so.preload' ||
    escaped "another workspace's system has what this one's root did"
"$CARREL" run --workspace "$TMP/w" --system "$BASE:$TMP/l2" --user root --rw "$TMP/l:/x" -- find /x -mindepth 1 -delete >/dev/null 2>&1 || true
chmod -Rf u+rwx "$TMP/l" "$TMP/l2" || true
exit 0
