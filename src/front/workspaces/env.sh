#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# carrel env: makes environments inside a workspace, and says what there is in lines of words with tabs between. It is
# embedded in the front (env_script.c), which cannot open files later, and run as sh -c.
#
# What is new is made beside what there is, and takes its place at one instant when it is whole: a failure, or a kill,
# leaves the one or the other. Where names cannot be exchanged it is two renames, and the next one finds what was put aside
# (clean). On a template /.venv is a mount, which cannot be renamed: there the new one gets a name of its own, and the broker
# puts it into its place when the sandbox is over, if asked to (broker/sandbox_spec.c); until then there is the old one. pip,
# of 440 files, is not compiled: that would take longer than all the rest.
set -u
umask 022
cd /
PATH=/usr/local/bin:/usr/bin:/bin
tools=/opt/carrel
uv=$tools/libexec/uv bun=$tools/bin/bun
unset VIRTUAL_ENV UV_PROJECT_ENVIRONMENT UV_PYTHON PYTHONHOME PYTHONPATH CONDA_PREFIX
downloads=${UV_PYTHON_DOWNLOADS-}
export PATH UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never
export UV_NO_PROGRESS=1 UV_COMPILE_BYTECODE=0 NO_COLOR=1
what=$1 want=$2 clear=$3
mounted='' new=/.venv.carrel-new old=/.venv.carrel-old next=/.venv.carrel-next
project=/.pyproject.carrel-new
package=/.package.carrel-new bunfig=/.bunfig.carrel-new no_room='No space left'
while read -r _ _ _ _ at _; do
    [ "$at" != /.venv ] || mounted=1
done </proc/self/mountinfo

say() { printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "${3-}" "${4-}" "${5-}"; }
end() { printf 'why\t%s\n' "$2"; exit "$1"; }
is_there() { [ -e "$1" ] || [ -L "$1" ]; }
clean() {
    rm -rf "$new" "$next" "$project" "$package" "$bunfig" /.venv/.carrel-cache
    is_there /.venv || ! is_there "$old" || mv -T "$old" /.venv
    rm -rf "$old"
}
lock() {
    command -v flock >/dev/null || return 0
    exec 9</tmp
    flock -n 9 || { [ -n "${1-}" ] && sleep "$1" && flock -n 9; } || end 46 ''
}
undo=:
fail() {
    $undo
    clean
    case $1 in
    *'os error 28'* | *'os error 122'* | *'No space left'* | *'quota exceeded'*) end 45 "$1" ;;
    esac
    end 44 "$1"
}
try() { said=$("$@" 2>&1 </dev/null) || fail "$said"; }
list() {
    "$uv" python list --only-installed 2>/dev/null | while read -r name path _; do
        case $path in /*) say have "$name" "$path" ;; esac
    done
}

look() {
    state=none version='' base='' pip=''
    is_there /.venv || return 0
    [ ! -d /.venv ] || [ -n "$(ls -A /.venv)" ] || return 0
    state=broken
    [ -d /.venv ] && [ ! -L /.venv ] && [ -f /.venv/pyvenv.cfg ] || return 0
    said=$(timeout 20 /.venv/bin/python -I -c 'import sys
assert sys.prefix == "/.venv"
print("%d.%d.%d" % sys.version_info[:3], sys._base_executable)' 2>/dev/null </dev/null) ||
        return 0
    state=there version=${said%% *} base=${said#* }
    for at in /.venv/lib/python3*/site-packages/pip-*.dist-info; do
        [ ! -f "$at/INSTALLER" ] || { pip=${at##*/pip-} && pip=${pip%.dist-info}; }
    done
}
tell() { [ "$state" = none ] || say python "$state" "$version" "$base" "$pip"; }
point() {
    # shellcheck disable=SC2013 # names of programs have no blanks, and behind a pipe fail would end nothing
    for at in $(grep -lIr -- "$new" "$new/bin"); do
        sed -i "s|$new|/.venv|g" "$at" || fail "$no_room"
    done
}
add_pip() {
    set -- $tools/wheels/pip-*.whl
    [ -f "$1" ] || return 0
    try "$uv" pip install --python "$at/bin/python" --no-index --no-deps --no-config \
        --find-links $tools/wheels --cache-dir "$at/.carrel-cache" --link-mode hardlink pip
    rm -rf "$at/.carrel-cache"
}
# What is there of pip when none is there, whole: its last file is missing.
drop_pip() {
    rm -rf /.venv/lib/python3*/site-packages/pip /.venv/lib/python3*/site-packages/pip-*.dist-info
    rm -f /.venv/bin/pip /.venv/bin/pip3 /.venv/bin/pip3.*
}
exchange() {
    "$new/bin/python" -I -S -c 'import ctypes, sys
a, b = map(str.encode, sys.argv[1:])
sys.exit(ctypes.CDLL(None).renameat2(-100, a, -100, b, 2) != 0)' "$new" /.venv 2>/dev/null
}
put() {
    is_there /.venv || { mv -T "$new" /.venv; return; }
    sync -f "$new" 2>/dev/null # before its name says that it is whole
    [ -z "$mounted" ] || { mv -T "$new" "$next"; return; }
    ! exchange || { rm -rf "$new"; return 0; }
    mv -T /.venv "$old" && mv -T "$new" /.venv && rm -rf "$old"
}
find_python() { found=$("$uv" python find --system ${want:+"$want"} 2>&1 </dev/null); }
# One of uv's own, for all later ones as well.
fetch_python() {
    [ "$downloads" = automatic ] || return 1
    found=$(env -u UV_OFFLINE UV_PYTHON_DOWNLOADS=automatic "$uv" python install ${want:+"$want"} 2>&1 </dev/null)
}
make_python() {
    look
    if [ -z "$clear" ]; then
        case $state in
        broken) end 43 '' ;;
        there)
            case $version in "$want" | "$want".*) ;; *) [ -z "$want" ] || { tell; end 42 ''; } ;; esac
            [ -n "$pip" ] || { at=/.venv undo=drop_pip && drop_pip && add_pip; undo=:; }
            look
            tell
            return
            ;;
        esac
    fi
    # shellcheck disable=SC2015 # what is fetched may still not be found
    find_python || fetch_python && find_python || {
        list
        end 41 "$found"
    }
    try "$uv" venv --no-config --no-project --python "$found" --prompt workspace "$new"
    point
    at=$new
    add_pip
    point
    minor=$("$new/bin/python" -I -S -c 'import sys
print("%d.%d" % sys.version_info[:2])' 2>&1) || fail "$minor"
    is_there /pyproject.toml || cat >"$project" <<END || fail "$no_room"
[project]
name = "workspace"
version = "0.1.0"
requires-python = ">=$minor"
dependencies = []

# Tests are looked for below /, but not in the system.
[tool.pytest.ini_options]
norecursedirs = [".*", "node_modules", "/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/tmp", "/usr"]
END
    said=$(put 2>&1) || fail "$said"
    [ -z "$mounted" ] || end 48 ''
    settle
}
settle() {
    ! is_there "$next" || fail 'the new environment could not be put into its place, as something of the workspace still ran; ask again'
    is_there /pyproject.toml || [ ! -f "$project" ] || mv -T "$project" /pyproject.toml
    look
    [ "$state" != there ] || state=new
    tell
}

tell_node() {
    node=$(command -v node) && node=$(node --version 2>/dev/null)
    say node "$1" "$("$bun" --version 2>/dev/null)" "$node" "$(command -v npm)"
}
make_node() {
    state=there
    ! is_there /node_modules || [ -d /node_modules ] || end 47 ''
    is_there /package.json || cat >"$package" <<END || fail "$no_room"
{
  "name": "workspace",
  "module": "index.ts",
  "type": "module",
  "private": true
}
END
    is_there /bunfig.toml || cat >"$bunfig" <<END || fail "$no_room"
# Tests are looked for below /, but not in the system.
[test]
pathIgnorePatterns = ["bin/**", "dev/**", "etc/**", "lib/**", "lib32/**", "lib64/**", "opt/**", "proc/**", "sbin/**", "sys/**", "tmp/**", "usr/**"]
END
    [ -d /node_modules ] || { try mkdir /node_modules && state=new; }
    [ ! -f "$package" ] || { mv "$package" /package.json && state=new; }
    [ ! -f "$bunfig" ] || mv "$bunfig" /bunfig.toml
    tell_node "$state"
}
report() {
    say tools "$("$uv" --version 2>/dev/null)" "$("$bun" --version 2>/dev/null)"
    look
    tell
    [ ! -e /package.json ] || tell_node there
    list
}

case $what in
report) report; exit 0 ;;
clean) lock 2; clean; exit 0 ;;
settle)
    lock 2
    settle
    [ "$want" != both ] || make_node
    clean
    exit 0
    ;;
python) [ -x "$uv" ] || end 40 '' ;;
node) [ -x "$bun" ] || end 40 '' ;;
both) { [ -x "$uv" ] && [ -x "$bun" ]; } || end 40 '' ;;
esac
lock
trap '$undo; clean; exit 143' TERM INT HUP
clean
case $what in python | both) make_python ;; esac
case $what in node | both) make_node ;; esac
