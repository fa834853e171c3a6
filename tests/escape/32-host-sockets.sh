#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 32: connect to an abstract socket of the host and to one in its file system; search / for any socket
# MUST: refused; none found
# CONTROL: ns-net,landlock
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

name=carrel-test-$$
cp "$PROBES/sockets" "$WS/sockets"
# Close-fds would close the listener if Carrel held it; a neighbour does.
"$PROBES/sockets" listen "$name" /bin/sleep 300 &
neighbour=$!
trap 'kill $neighbour 2>/dev/null || true' EXIT
until grep -q "@$name" /proc/net/unix; do sleep 0.02; done
/usr/bin/python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$TMP/path"
judge attack -- sockets connect "$name" "$TMP/path"
