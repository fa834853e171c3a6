#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 46: put a symlink, a file, a FIFO or a full directory where the workspace's usr, proc, dev, etc, tmp must be
# MUST: refused with 125 in one line that names it; nothing moved, made, mounted or written through the link
# INV-3
# CONTROL: mountpoint-check

# shellcheck source=/dev/null
. "$TESTLIB"

victim=$TMP/victim

plant() { # KIND PATH
    case $1 in
        link-inside) mkdir "$WS/elsewhere" && ln -s elsewhere "$2" ;;
        link-outside) ln -s "$victim" "$2" ;;
        dangling) ln -s /nowhere/at/all "$2" ;;
        file) echo precious >"$2" ;;
        fifo) mkfifo "$2" ;;
        full) mkdir "$2" && echo precious >"$2/file" ;;
    esac
}

# Everything about a tree that a start could have changed.
picture() {
    find "$@" -printf '%p %y %i %m %U:%G %s %C@ %l\n' | sort
}

for name in usr proc dev etc tmp .cache bin lib; do
    [ -e "/$name" ] || [ "$name" = .cache ] || continue
    for kind in link-inside link-outside dangling file fifo full; do
        case $kind$name in fulltmp | full.cache) continue ;; esac # covered, what they hold stays
        rm -rf "$WS" "$victim"
        mkdir "$WS" "$victim"
        plant $kind "$WS/$name"
        picture "$WS" "$victim" >"$TMP/before"
        status=0
        inside -- /bin/true >"$TMP/out" 2>&1 || status=$?
        picture "$WS" "$victim" >"$TMP/after"
        echo "$kind as $name: status $status: $(cat "$TMP/out")"
        [ $status = 125 ] || escaped "$kind as $name was not refused"
        diff "$TMP/before" "$TMP/after" || escaped "$kind as $name changed the tree"
        [ "$(wc -l <"$TMP/out")" = 1 ] || escaped "$kind as $name was not refused in one line"
        grep -q "^carrel: .*\b$name\b\|^carrel: .*$name" "$TMP/out" || escaped "the refusal does not name $name"
    done
done
