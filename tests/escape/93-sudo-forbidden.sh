#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
# BASE
# CONTROL: sudo-forbidden
# Attack: root, by sudo, where the policy says that no command is root's, and of a planned command.
# shellcheck source=/dev/null
. "$TESTLIB"
mkdir -p "$TMP/w" && mkdir -m 700 "$TMP/l"
echo '{"user": "user"}' >"$TMP/policy.json"
inside() { "$CARREL" run --workspace "$TMP/w" --system "$BASE:$TMP/l" "$@"; }
# Another program than sudo could ask as well: so the socket must not be there.
ways='sudo -n id -u; sudo -u root id -u; test -S /run/carrel/ask && echo "a socket"; echo ran'
for how in "--policy $TMP/policy.json" --plan; do
    # shellcheck disable=SC2086
    got=$(inside $how -- sh -c "$ways" 2>/dev/null) || true
    case $got in *ran*) ;; *) unclear "the attack did not run: $got" ;; esac
    case $got in *0* | *socket*) escaped "root in spite of $how: $got" ;; esac
done
exit 0
