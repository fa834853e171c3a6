#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 48: change what lies below a layer, which other sandboxes share: by writing in place, mapped memory, links, moves,
#            attributes, marks of the overlay's own, and through descriptors that were opened before the copy was made
# MUST: leave every byte, name and attribute of it as it was; and the layer of another sandbox too
# CONTROL: layer

# shellcheck source=/dev/null
. "$TESTLIB"

base=$TMP/base
mkdir -p "$base/dir/deep"
mkdir -m 700 "$TMP/mine" "$TMP/yours"
for name in a b c d e f g h dir/x dir/deep/y; do echo "precious $name" >"$base/$name"; done
ln "$base/a" "$base/second-name-of-a"

picture() {
    [ -e "$1" ] || return 0 # without layers there is nothing in one
    find "$@" -printf '%p %y %i %m %n %U:%G %s %T@ %l\n' | sort
    find "$@" -type f -exec sha256sum {} + | sort
    getfattr -Rhd -m- "$@" 2>/dev/null || true
}

cat >"$WS/attack.py" <<'ATTACK'
import mmap, os

def attempt(what, *args, **more):
    try:
        return what(*args, **more)
    except OSError as error:
        print(what.__name__, error)

os.chdir("/shared")
before = os.open("a", os.O_RDONLY)  # of the file below, before there is a copy
folder = os.open("dir", os.O_RDONLY | os.O_DIRECTORY)
shown = mmap.mmap(before, 4, mmap.MAP_SHARED, mmap.PROT_READ)
with open("a", "r+b") as file:
    file.write(b"HOSTILE")
    m = mmap.mmap(file.fileno(), 7)
    m[0:7] = b"MAPPED!"
    m.flush()
for path in (f"/proc/self/fd/{before}", f"/dev/fd/{before}"):
    again = attempt(os.open, path, os.O_RDWR)
    if again is not None:
        os.write(again, b"REOPEN!")
attempt(os.truncate, "b", 0)
attempt(os.chmod, "c", 0o777)
attempt(os.utime, "c", (1, 1))
for name in ("user.note", "user.overlay.redirect", "user.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.origin"):
    attempt(os.setxattr, "d", name, b"/a")
    attempt(os.setxattr, "dir", name, b"y")
attempt(os.link, "e", "hard")
with open("hard", "a") as file:
    file.write("HOSTILE")
attempt(os.rename, "f", "dir/f")
attempt(os.rename, "g", "h")
attempt(os.unlink, "second-name-of-a")
attempt(os.rename, "dir/deep", "deep")
attempt(os.rename, "dir", "moved")
attempt(os.unlink, "dir/deep/y")
attempt(os.rmdir, "dir/deep")
attempt(os.mknod, "dir/x2", 0o020600, 0)
into = attempt(os.open, "new", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder)
attempt(os.unlink, "x", dir_fd=folder)
attempt(os.fchmod, folder, 0o700)
attempt(os.chmod, "/shared", 0o700)
print("done")
ATTACK

picture "$base" >"$TMP/before"
inside --layer "$base:/shared:$TMP/yours" -c 'echo mine > /shared/own'
picture "$TMP/yours/upper" >"$TMP/yours-before"
output=$(inside --layer "$base:/shared:$TMP/mine" -- /usr/bin/python3 /attack.py 2>&1) || unclear "the attack failed: $output"
echo "$output"
case $output in *done) ;; *) unclear "the attack did not come to its end" ;; esac
[ -e "$TMP/mine/upper/hard" ] || weak || unclear "nothing was changed at all"
picture "$base" >"$TMP/after"
picture "$TMP/yours/upper" >"$TMP/yours-after"
chmod -R u+rwx "$TMP/mine" "$TMP/yours"
diff "$TMP/before" "$TMP/after" || escaped "what lies below the layer has changed"
diff "$TMP/yours-before" "$TMP/yours-after" || escaped "the layer of another sandbox has changed"
echo contained
