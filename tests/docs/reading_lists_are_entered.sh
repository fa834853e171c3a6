#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# AS: root
# TIMEOUT: 180
# Each source file that ARCHITECTURE.md has somebody read to follow a way is entered on it.
set -u
programs=$(dirname "$CARREL")/way
[ -x "$programs/carrel" ] || { echo "there are no programs that say what they enter; make way" && exit 77; }
"$SRC/tools/way" --check "$programs"
