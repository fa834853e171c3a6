#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 69: with the host's network, swap a Unix socket for one of TCP between the look at it and its use
# MUST: no connection to a metadata address in twelve thousand
# CONTROL: landlock
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/outbound" "$WS/outbound"
world() {
    "$PROBES/outbound" world "$CARREL" run --level ns --workspace "$WS" --net host -- /outbound "$@"
}
[ "$(world has-unix | head -n 1)" = yes ] || skip "no Unix sockets with the host's network on this kernel: nothing to race with"
judge world race-socket
