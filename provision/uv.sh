#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# uv, but: in the root, which has no name, "uv init" makes the project "workspace"; a Python that is not there is refused; and
# an install that fails takes nothing from /.venv. It is bin/uv of the tools (toolbox.py).
#
# uv calls a new project after the directory it is made in. In the root, where commands start, there is no such name, and "uv
# init" would fail. And it pins a project to a Python that is not there, and never will be, without a word. Where uv may fetch
# it, it does so at once.
#
# An install that fails half way (a full disk) leaves what it replaces removed and what is new in part: uv has no way back. What
# there was is noted before, and put back from the cache. A note that is found was left by one that was killed, perhaps long
# ago: what is whole by now may be somebody else's work. So nothing that is whole is ever removed; one package more is no harm.
# uv waits for others itself; here, too, they wait for each other, so that none takes back what another has done.
uv=/opt/carrel/libexec/uv note=/.venv/.carrel-installing site='' list='' nl='
'

# Packages that are whole: what uv and pip write last is a RECORD that names their INSTALLER.
wholes() {
    grep -ls '/INSTALLER,' "$site"/*.dist-info/RECORD | while read -r at; do
        at=${at%/RECORD}
        [ ! -f "$at/INSTALLER" ] || echo "${at##*/}"
    done
}
# Names in site-packages that belong to none of these.
others() (
    export LC_ALL=C
    cd "$site" || exit
    owned=$(wholes | sed 's,$,/RECORD,' | xargs -r sed 's/^"//; s,[/,].*,,')
    { printf '%s\n' "$owned" "$owned"; ls -A; } | sort | uniq -u
)
# The note: "/", those names, and the packages with a "/" before each.
look() { echo / && others && wholes | sed 's,^,/,'; }
write() {
    printf '%s\n' "$1" 2>/dev/null >"$note.new" && mv -T "$note.new" "$note" && return
    rm -f "$note.new"
    return 1
}
# Packages of the note that are gone, or in part; "": unless there is another version.
missing() {
    lost='' list='' have=$nl$(wholes)
    while read -r name; do
        case $name in /?*) name=${name#/} ;; *) continue ;; esac
        want=${name%%-*}-
        [ -z "$1" ] || want=$name
        case $have in *"$nl$want"*) continue ;; esac
        list=$list/$name$nl name=${name%.dist-info}
        lost="$lost ${name%%-*}==${name#*-}"
    done <"$note"
    [ -n "$lost" ]
}
pip_runs() {
    cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -q -e '[-]m pip ' -e '/[p]ip[0-9.]* '
}
# shellcheck disable=SC2086 # words of the packages that are missing
get() { "$uv" pip install -q --no-deps $lost 2>/dev/null 9<&-; }
# 1: some are missing still; 2: what is in part may be pip's, and all is left as it is.
put_back() {
    half=''
    ! grep -qx / "$note" || half=$(others | grep -vxF -f "$note")
    missing "$1" || [ -n "$half" ] || return 0
    [ -z "$half" ] || ! pip_runs || return 2
    echo 'carrel: an install did not end; putting back what /.venv had, as it was' >&2
    printf '%s\n' "$half" "$list" | while IFS= read -r name; do
        [ -z "${name#/}" ] || rm -rf "${site:?}/${name#/}"
    done
    [ -z "$lost" ] || (export UV_OFFLINE=1 && get) || get
    missing "$1" || return 0
    echo "carrel: what is missing now: uv pip install$lost (without it: rm $note)" >&2
    return 1
}
refuse() {
    echo "error: $1" >&2
    exit 2
}
lock() {
    exec 9</.venv
    flock -n 9 && return
    echo 'carrel: another install is at work in /.venv; waiting for it' >&2
    flock -w 600 9 || refuse 'another install in /.venv does not end: end it, and install again'
}
install() {
    for at in /.venv/lib/python3*/site-packages; do [ ! -d "$at" ] || site=$at; done
    # shellcheck disable=SC2015 # exec has no other end
    [ -n "$site" ] && [ -w "$site" ] && [ -z "${CARREL_UV-}" ] && command -v flock >/dev/null ||
        exec "$uv" "$@"
    export CARREL_UV=1 # what it starts does not wait for it
    trap : INT TERM HUP
    lock
    [ ! -s "$note" ] || put_back '' || [ $? = 1 ] ||
        refuse 'pip is at work in /.venv; wait for it, and install again'
    before=$list
    write "$(look; printf '%s' "$before")" || refuse 'No space left: remove files, and install again'
    "$uv" "$@" 9<&- # what it leaves running would keep the lock
    code=$?
    list=''
    if [ "$code" = 0 ]; then
        [ -z "$before" ] || { write "$before" && missing ''; }
    else
        put_back exact || [ $? = 1 ] || {
            echo 'carrel: pip is at work: what is left in part goes with the next install' >&2
            exit "$code"
        }
    fi
    if [ -n "$list" ]; then write "$list"; else rm -f "$note"; fi
    exit "$code"
}

case "${1-} ${2-}" in
'pip install' | 'pip sync' | 'add '* | 'sync '* | 'remove '*) install "$@" ;;
'init '*) ;;
*) exec "$uv" "$@" ;;
esac
named='' value='' python='' words=0
for word; do
    case $value in
    python) python=$word value='' && continue ;;
    other) value='' && continue ;;
    esac
    case $word in
    --name | --name=* | -h | --help) named=1 ;;
    -p | --python) value=python ;;
    --python=*) python=${word#*=} ;;
    --description | --build-backend | --vcs | --author-from | --directory | --project | \
        --config-file | --cache-dir | --color | --allow-insecure-host) value=other ;;
    -*) ;;
    *) words=$((words + 1)) ;;
    esac
done
if [ -n "$python" ] && ! "$uv" python find --no-project --system "$python" >/dev/null 2>&1; then
    if [ "${UV_PYTHON_DOWNLOADS-}" = automatic ]; then
        "$uv" python install "$python" || refuse "Python $python could not be fetched"
    else
        have=$("$uv" python list --only-installed 2>/dev/null |
            sed -n 's/^[a-z]*-\([^-]*\)-.*/\1/p' | sort -u | tr '\n' ' ')
        refuse "there is no Python $python here; there are: ${have:-none}(uv fetches others where the policy's \"network\" allows where they are, such as @github)"
    fi
fi
[ -n "$named" ] || [ "$words" -gt 1 ] || [ "$PWD" != / ] || set -- "$@" --name workspace
exec "$uv" "$@"
