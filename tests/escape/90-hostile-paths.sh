#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 90: exchange the directory a run starts in with a link, or delete it and plant a link under the name the kernel
# then shows for it; plant links where mount points will be made
# MUST: the run gets the directory that was opened, or is refused; nothing is seen or made behind a link
# INV-3
# CONTROL: outside
# TIMEOUT: 180

# shellcheck source=/dev/null
. "$TESTLIB"

secret=$TMP/secret victim=$TMP/victim top=$TMP/top
mkdir -p "$secret/sub" "$victim" "$top" "$TMP/folder"
touch "$secret/secret" "$secret/sub/secret" "$TMP/file"

enter() { # DIR
    cd "$1" || unclear "cannot enter $1"
}

# by_name NAIVE -- OPTIONS…: a run in the current directory; for the control, what a program does that trusts names.
by_name() {
    local naive=$1
    shift 2
    if outside; then bash -c "$naive"; else "$CARREL" run --level ns "$@"; fi
}

# --- a deleted directory, and a link under the name that /proc gives it ---

deleted_directory() {
    local place status
    mkdir "$top/sub"
    enter "$top/sub"
    rmdir "$top/sub"
    ln -s "$secret" "$top/sub (deleted)"
    for place in "" "--workspace ."; do
        status=0
        # shellcheck disable=SC2016,SC2086
        by_name 'ls -A "$(readlink /proc/$$/cwd)/"' -- $place -- ls -A . >"$TMP/out" 2>&1 || status=$?
        echo "deleted directory: status $status: $(cat "$TMP/out")"
        ! grep -qw secret "$TMP/out" || escaped "a link beside a deleted directory was followed"
        [ $status = 125 ] || escaped "a deleted directory was not refused"
        grep -q "has been deleted" "$TMP/out" || escaped "the refusal does not say why"
    done
}

# --- a name exchanged with a link while sandboxes start: the directory's own, then its parent's ---

exchange() { # NAME OTHER
    exec /usr/bin/python3 - "$@" <<'END'
import ctypes, os, random, sys, time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, EXCHANGE = -100, 2
one, other = map(os.fsencode, sys.argv[1:])
while True:
    if libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE) < 0:
        sys.exit("renameat2 failed")
    time.sleep(random.random() * 0.003)
END
}

started=0 refused=0

start_in_exchanged() { # NAME OPTION…: NAME is a link to the secret now and then
    local name=$1 link=$TMP/link status swapper _
    shift
    ln -sfn "$secret" "$link"
    exchange "$name" "$link" &
    swapper=$!
    # shellcheck disable=SC2064
    trap "kill $swapper 2>/dev/null || true" EXIT
    for _ in {1..20}; do
        status=0
        by_name "ls -A $top/sub/" -- "$@" -- ls -A . >"$TMP/out" 2>&1 || status=$?
        ! grep -qw secret "$TMP/out" || escaped "started in the directory behind the link: $(cat "$TMP/out")"
        case $status in
            0) started=$((started + 1)) ;;
            125) refused=$((refused + 1)) && continue ;;
            *) outside || unclear "ended with $status: $(cat "$TMP/out")" ;;
        esac
        outside || grep -qx own "$TMP/out" || escaped "started in some other directory: $(cat "$TMP/out")"
    done
    kill $swapper || unclear "nothing was exchanged"
    wait $swapper || true
    [ ! -L "$name" ] || { rm "$name" && mv "$link" "$name"; }
}

exchanged_directory() {
    rm -rf "$top"
    mkdir -p "$top/sub"
    touch "$top/sub/own"
    enter "$top/sub"
    start_in_exchanged "$top/sub"
    start_in_exchanged "$top"
    start_in_exchanged "$top/sub" --workspace .
    echo "$started started where they should, $refused refused"
    [ $started -gt 0 ] || unclear "not one start came through"
    [ "$(find "$secret" | wc -l)" = 4 ] || escaped "something was made behind the link: $(find "$secret")"
}

# --- mount points behind links planted in the tree ---

# mount_behind OPTIONS…: sets status, and sees that the victim stays empty.
mount_behind() {
    status=0
    by_name "touch $WS/link/x" -- "$@" -- true >"$TMP/out" 2>&1 || status=$?
    echo "${*//$TMP\//}: status $status: $(cat "$TMP/out")"
    [ -z "$(ls -A "$victim")" ] || escaped "made behind the link: $(ls -A "$victim")"
}

# refuse_mount OPTIONS…: must be refused in one line as well.
refuse_mount() {
    mount_behind "$@"
    [ $status = 125 ] || escaped "a mount point behind a link was not refused"
    [ "$(grep -c ^carrel: "$TMP/out").$(wc -l <"$TMP/out")" = 1.1 ] || escaped "not refused in one line"
}

planted_links() {
    local status tree source way
    mkdir -p "$WS/deep" "$TMP/data"
    for tree in "$WS" "$WS/deep" "$TMP/data"; do ln -s "$victim" "$tree/link"; done
    enter "$WS"
    for source in "$TMP/file" "$TMP/folder"; do
        for way in --ro --rw; do
            refuse_mount $way "$source:/work/link/x"
            refuse_mount $way "$source:/work/link/x/y"
            refuse_mount --rw "$TMP/data:/data" $way "$source:/data/link/x"
            refuse_mount --workspace "$WS" $way "$source:/link/x"
            refuse_mount --workspace "$WS" $way "$source:/deep/link/x/y"
            refuse_mount --workspace "$WS" --rw "$TMP/data:/data" $way "$source:/data/link/x"
            mount_behind $way "$source:/work/link" # may cover the link, never follow it
        done
    done
}

for part in deleted_directory exchanged_directory planted_links; do
    if outside; then # every part must be able to fail
        if ($part); then unclear "$part cannot fail"; fi
    else
        $part
    fi
done
! outside
