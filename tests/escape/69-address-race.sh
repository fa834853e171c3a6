#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 69: with the host's network, swap the address between the look at it and its use
# MUST: no connection to a metadata address in twelve thousand
# CONTROL: net-guard
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/outbound" "$WS/outbound"
world() {
    "$PROBES/outbound" world "$CARREL" run --level ns --workspace "$WS" --net host -- /outbound "$@"
}
judge world race-address
