# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What test scripts share. A test begins with  . "$TESTLIB"  and has, from tests/run: CARREL, CARREL_WEAK, CARREL_ASAN,
# PROBES, TMP, IDENT, SRC, and for escape tests MODE (real or weak). WS is a fresh workspace of its own.

set -euo pipefail

WS=$TMP/ws
mkdir -p "$WS"

# --- how a test ends ---

fail() {
    echo "FAIL: $*"
    exit 1
}

skip() {
    echo "$*"
    exit 77
}

# Escape tests: the attack worked.
escaped() {
    echo "ESCAPED: $*"
    exit 1
}

# Escape tests: neither the attack nor its defence was seen, so the test says nothing. Wrong in every mode.
unclear() {
    echo "UNCLEAR: $*"
    exit 2
}

# --- running things in the sandbox ---

weak() {
    [ "${MODE:-real}" = weak ]
}

# The control is "outside": the attack runs with no sandbox at all.
outside() {
    weak && [ "${CARREL_WEAKEN:-}" = outside ]
}

# inside [option of carrel run…] -- COMMAND [ARG…]
inside() {
    if outside; then
        while [ "$1" != -- ]; do shift; done
        shift
        "$@"
    else
        "$CARREL" run --level ns --workspace "$WS" "$@"
    fi
}

# attack [option of carrel run…] -- PROBE [ARG…]: a program of tests/escape/probes, planted in the workspace as any
# hostile code would be.
attack() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    local name=$2
    shift 2
    cp -f "$PROBES/$name" "$WS/$name"
    if outside; then
        "$WS/$name" "$@"
    else
        inside "${options[@]}" -- "/$name" "$@"
    fi
}

# judge COMMAND…: runs an attack and ends the test by what it printed: "ESCAPED: …" for each way out it found, or, as
# its last line, "contained". A crash, an unstarted sandbox or silence is neither.
judge() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    printf '%s\n' "$output"
    case $output in
        *ESCAPED:*) exit 1 ;;
        contained | *$'\n'contained) [ "$status" = 0 ] && exit 0 ;;
    esac
    unclear "ended with status $status"
}

# --- looking from the host ---

# marked WORD: the ids of all live processes of the host that have WORD among their arguments.
marked() {
    local file words
    for file in /proc/[0-9]*/cmdline; do
        { mapfile -d '' -t words <"$file"; } 2>/dev/null || continue
        [[ " ${words[*]} " == *" $1 "* ]] && basename "${file%/cmdline}"
    done
    return 0
}

# gone WORD WHEN: nobody so marked is left; else ends them, and the test.
gone() {
    local left
    left=$(marked "$1")
    [ -n "$left" ] || return 0
    # shellcheck disable=SC2086  # one word for each process
    kill -KILL $left 2>/dev/null || true
    escaped "$2, these lived on: ${left//$'\n'/ }"
}

alive() { # PID
    grep -qs '^State:.[^ZX]' "/proc/$1/status"
}

# eventually COMMAND…: waits until it succeeds, for a generous while.
eventually() {
    local _
    for _ in {1..250}; do
        "$@" && return
        sleep 0.04
    done
    return 1
}

# on_victim PROBE ATTACK: sets the probe on a process of the host that has the very uid of the sandbox there, so that no
# permission stands between them. The sandbox runs first, for its uid to be seen; then the victim is made, and named.
on_victim() {
    local mark=victim-$$-$RANDOM uid victim become=()
    mkfifo "$TMP/orders"
    attack -- "$1" "$2" "$mark" <"$TMP/orders" >"$TMP/out" 2>&1 &
    exec 7>"$TMP/orders"
    eventually grep -q ready "$TMP/out" || unclear "the attack did not start: $(cat "$TMP/out")"
    # The caller of Carrel is among those marked, too: a leased uid is higher than any.
    uid=$(marked "$mark" | sed 's,.*,/proc/&/status,' | xargs grep -h ^Uid: | cut -f2 | sort -n | tail -1)
    [ "$IDENT" = user ] || become=(setpriv --reuid "$uid" --regid "$uid" --clear-groups)
    "${become[@]}" sleep 300 >/dev/null 2>&1 &
    victim=$!
    eventually grep -qx sleep "/proc/$victim/comm" || unclear "no victim"
    echo $victim >&7
    exec 7>&-
    wait %1 || true
    cat "$TMP/out"
    sleep 0.2 # for the signal to do its work
    alive $victim || echo "ESCAPED: the victim, a process of the host with uid $uid, is dead"
    kill -KILL $victim 2>/dev/null || true
}
