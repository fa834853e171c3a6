#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 20: open /proc/PID/exe of Carrel's helper in a loop, to write over it once nobody runs it (CVE-2019-5736)
# MUST: EACCES, ENOENT or ETXTBSY; the helper's hash stays
# CONTROL-root: caps,ids
# CONTROL-user: dumpable

# shellcheck source=/dev/null
. "$TESTLIB"

# Copies that belong to the attacked identity and may be written: only the sandbox stands before them.
mkdir "$TMP/bin"
cp "$(dirname "$CARREL")/carrel" "$(dirname "$CARREL")/carrel-init" "$TMP/bin/"
chmod 755 "$TMP/bin/"*
before=$(cat "$TMP/bin/"* | sha256sum)
CARREL=$TMP/bin/carrel
overwrite() {
    attack -- helpers exe
    [ "$(cat "$TMP/bin/"* | sha256sum)" = "$before" ] || echo "ESCAPED: the helper was written over"
}
judge overwrite
