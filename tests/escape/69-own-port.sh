#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 69: with the host's network, connect to the daemon's port by every name of this host
# MUST: EACCES
# CONTROL: net-guard
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/outbound" "$WS/outbound"
world() {
    "$PROBES/outbound" world "$CARREL" run --level ns --workspace "$WS" --net host -- /outbound "$@"
}
judge world own-port
