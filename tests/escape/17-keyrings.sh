#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 17: find and read a key in the session keyring of whoever started Carrel; add 10,000 keys
# MUST: EPERM
# CONTROL: seccomp,keyring

# shellcheck source=/dev/null
. "$TESTLIB"

# The host side joins a session keyring with a key in it and then becomes Carrel.
cp "$PROBES/keys" "$WS/keys"
judge "$PROBES/keys" plant "$CARREL" run --level ns --workspace "$WS" -- /keys steal
