#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 69: with the host's network, make a connection without connect(2): fast open, other protocols, io_uring, 32-bit calls
# MUST: refused, or the end of the process; raw sockets as ever
# CONTROL: net-guard
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/outbound" "$WS/outbound"
world() {
    "$PROBES/outbound" world "$CARREL" run --level ns --workspace "$WS" --net host -- /outbound "$@"
}
judge world other-ways
