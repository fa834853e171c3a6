#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# BASE
# CONTROL: caps-of-root
# Attack: a command of the user's speaks to pid 1 where sudo does, without sudo: for more than root inside has, with
# messages that are none, with descriptors, and faster than anybody can answer.
# shellcheck source=/dev/null
. "$TESTLIB"
mkdir -p "$TMP/w" && mkdir -m 700 "$TMP/l"
inside() { "$CARREL" run --workspace "$TMP/w" --system "$BASE:$TMP/l" "$@"; }

cat >"$TMP/w/attack.pl" <<'PERL'
use Socket;
sub dial { socket(my $s, AF_UNIX, SOCK_STREAM, 0); connect($s, sockaddr_un("/run/carrel/ask")) or die "no socket: $!"; $s }
sub text { pack("L", length $_[0]) . $_[0] . "\0" }
sub command { my ($flags, $cwd, @argv) = @_;
    pack("L3", $flags, 0, 0) . text($cwd) . pack("L2", scalar @argv, 0) . join("", map { text($_) } @argv) }
sub message { my ($kind, $bytes, $files) = @_; pack("L3", $kind, length $bytes, $files // 0) . $bytes }
sub asked { my $s = dial(); syswrite($s, $_[0]); my $said = ""; 1 while sysread($s, $said, 4096, length $said); $said }

# Whatever is asked for, with and without the flags: root's rights, and no more.
my $line = "grep -h -E '^(Cap|NoNew)' /proc/self/status >>/run/carrel/rights; chmod 644 /run/carrel/rights";
system("sudo", "sh", "-c", $line);
for my $flags (0 .. 7) { asked(message(3, command($flags | 1, "/", "sh", "-c", $line))) }
asked(message(3, command(1, $_, "sh", "-c", $line))) for "/proc/1/cwd", "/proc/self/fd/3", "/proc/self/fd/4", "", "..", "/proc/1/root";
if (open(my $f, "<", "/run/carrel/rights")) {
    while (<$f>) {
        print "GOT $_" if /^Cap(?:Eff|Bnd|Prm|Inh|Amb):\s+(\w+)/ && hex($1) & ~0x800000db;
        print "GOT new privileges\n" if /^NoNewPrivs:\s+0/;
        $seen++;
    }
}
print "GOT nothing to look at\n" unless $seen;
# What is no request: every kind, lengths that lie, flags that are none, counts that lie, files that are not there.
asked(message($_, "x" x 40)) for 0 .. 12;
asked(message(3, command($_, "/", "true"))) for 8, 16, 0xffffffff;
asked(message(3, pack("L3", 1, 0, 0) . text("/") . pack("L2", $_, $_))) for 0, 65536, 0xffffffff, 0x7fffffff;
asked(pack("L3", 3, $_, 0) . "short") for 0, 1, 4 << 20, 0xffffffff;
asked(message(3, command(1, "/", "true"), $_)) for 1, 3, 200, 0xffffffff;
for (1 .. 60) { my $s = dial(); syswrite($s, join("", map { chr rand 256 } 1 .. rand 200)) }
my @open = map { dial() } 1 .. 30; # who connect and say nothing
undef @open;
# Pid 1, who keeps the command, and those who serve are there, and nobody's to trace.
for my $pid (1 .. 64) { print "GOT the memory of $pid\n" if $pid != $$ && -d "/proc/$pid" && !-o "/proc/$pid/fd" && open(my $m, "+<", "/proc/$pid/mem") }
print "attack ran\n";
PERL
got=$(inside -- perl /attack.pl 2>&1) || true
case $got in *"attack ran"*) ;; *) unclear "the attack did not run: $got" ;; esac
case $got in *GOT*) escaped "by way of sudo: $got" ;; esac

# What root has put in the place of sudo, of its socket or of the C library is his own loss, and gone with the sandbox.
inside --user root -- sh -c 'rm -rf /run/carrel/ask; ln -s /etc/shadow /run/carrel/ask; rm -f /usr/local/bin/sudo;
  printf "#!/bin/sh\necho mine\n" >/usr/local/bin/sudo; chmod 755 /usr/local/bin/sudo; cp /bin/true /usr/bin/sudo' || unclear "root could not replace its sudo"
[ "$(inside -- sh -c 'sudo; /run/carrel/sudo -n id -u')" = "$(printf 'mine\n0')" ] || escaped "what root has made of sudo outlives its sandbox elsewhere"
sum=$(sha256sum <"$(dirname "$CARREL")/carrel-sudo")
inside -- sh -c 'sudo dd if=/dev/zero of=/run/carrel/sudo; sudo rm -f /run/carrel/sudo; sudo mv /etc/passwd /run/carrel/sudo' >/dev/null 2>&1 || true
[ "$sum" = "$(sha256sum <"$(dirname "$CARREL")/carrel-sudo")" ] || escaped "carrel-sudo has changed"
"$CARREL" run --workspace "$TMP/w" --system "$BASE:$TMP/l" --user root --rw "$TMP/l:/x" -- find /x -mindepth 1 -delete >/dev/null 2>&1 || true
chmod -Rf u+rwx "$TMP/l" || true
exit 0
