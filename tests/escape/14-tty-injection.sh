#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 14: type into the caller's terminal by TIOCSTI, also with a bit above the 32; TIOCLINUX, TIOCSETD
# MUST: EPERM on every descriptor and terminal in reach, and nothing typed in the outer terminal
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/tty" "$WS/tty"

# Runs a command with a terminal of its own, prints its output, and tells what was typed in that terminal.
in_terminal() {
    /usr/bin/python3 -c '
import os, pty, sys, termios

master, slave = pty.openpty()
pid = os.fork()
if pid == 0:
    os.close(master)
    os.login_tty(slave)
    os.execv(sys.argv[1], sys.argv[1:])
os.set_blocking(master, False)
output, ended = b"", False
while True:
    try:
        output += os.read(master, 65536)
    except BlockingIOError:
        if ended:
            break
        ended = os.waitpid(pid, 0)[0] == pid  # all that the probe says fits into the terminal
for line in output.decode().replace("\r", "").splitlines():
    if "not allowed: ioctl" not in line:  # what Carrel says of it on a terminal
        print(line)
mode = termios.tcgetattr(slave)
mode[3] &= ~termios.ICANON
mode[6][termios.VMIN] = mode[6][termios.VTIME] = 0
termios.tcsetattr(slave, termios.TCSANOW, mode)
if typed := os.read(slave, 100):
    print(f"ESCAPED: typed in the outer terminal: {typed!r}")' "$@"
}

both() {
    # Beside the terminal, and with one made inside.
    in_terminal "$CARREL" run --level ns --workspace "$WS" -- /tty
    in_terminal "$CARREL" run --level ns --workspace "$WS" --tty -- /tty
}
judge both
