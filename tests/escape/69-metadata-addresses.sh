#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 69: with the host's network, connect to cloud metadata addresses, in every spelling, waiting and not
# MUST: EACCES
# CONTROL: net-guard
# TIMEOUT: 120

# shellcheck source=/dev/null
. "$TESTLIB"

cp "$PROBES/outbound" "$WS/outbound"
world() {
    "$PROBES/outbound" world "$CARREL" run --level ns --workspace "$WS" --net host -- /outbound "$@"
}
judge world metadata
