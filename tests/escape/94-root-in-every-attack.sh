#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
# BASE
# CONTROL: seccomp
# Attack: every other attack of this directory, by root of a system of the workspace's own.
# shellcheck source=/dev/null
. "$TESTLIB"

# What cannot be tried so, or is no escape there. With LONG=1 also those that take their time.
not_so() {
    case $1 in
    01-*) echo "a base has files of the same names" ;;
    04-* | 47-*) echo "they write to /usr and /etc, which are root's own there; 92 looks at the base and the host" ;;
    26-make-set-id-files-*) echo "file capabilities are root's to set there, and mean nothing outside; 92 looks for bits" ;;
    48-*) echo "root's files cannot be in the layer of an ordinary mount, whose ids are the user's" ;;
    9[2-9]-*) echo "of such systems already" ;;
    90-*) echo "it is about the directory of who starts one without a workspace" ;;
    82-*) echo "it needs Python inside" ;;
    13-* | 17-* | 24-* | 25-* | 36-* | 37-* | 38-* | 46-* | 81-* | 84-*) [ -n "$LONG" ] || echo "takes its time" ;;
    69-*) echo "needs programs that a base does not have" ;;
    esac
}

# A carrel that gives each run such a system, beside the programs that tests look for.
mkdir -p "$TMP/bin" && ln -s "$(dirname "$CARREL")"/carrel-* "$TMP/bin/"
cat >"$TMP/bin/carrel" <<'SH'
#!/usr/bin/env bash
verb=${1:-}
[ "$verb" = run ] || exec "$REAL_CARREL" "$@"
shift
mkdir -p -m 700 "$LAYERS"
layer=$(mktemp -d "$LAYERS/XXXXXX")
own=(--workspace "$LAYERS/desk")
for word in "$@"; do
    [ "$word" != -- ] || break
    [ "$word" != --workspace ] || own=()
done
mkdir -p "$LAYERS/desk"
exec "$REAL_CARREL" run "${own[@]}" --system "$BASE:$layer" --user root "$@"
SH
chmod +x "$TMP/bin/carrel"
export REAL_CARREL=$CARREL

tried=0
got=""
for test in "$SRC"/tests/escape/[0-9]*.sh; do
    name=$(basename "$test" .sh)
    [ -z "$(not_so "$name")" ] || continue
    place=$TMP/$name
    mkdir "$place"
    tried=$((tried + 1))
    # shellcheck disable=SC2016 # the inner shell's own
    if ! env LAYERS="$TMP/layers" CARREL="$TMP/bin/carrel" TMP="$place" TMPDIR="$place" HOME="$place" \
        bash -c 'cd "$TMP" && exec bash "$0"' "$test" >"$TMP/$name.log" 2>&1; then
        got="$got $name"
        tail -n 4 "$TMP/$name.log"
    fi
done
if [ "$IDENT" != root ]; then # what belongs to other ids of ours
    mkdir -p "$TMP/layers/last" "$TMP/layers/desk"
    "$REAL_CARREL" run --workspace "$TMP/layers/desk" --system "$BASE:$TMP/layers/last" --user root --rw "$TMP:/x" -- \
        sh -c 'chmod -R u+rwX /x; find /x -mindepth 2 -delete' >/dev/null 2>&1 || true
    chmod -Rf u+rwx "$TMP/layers" || true
fi
[ "$tried" -ge 20 ] || unclear "only $tried attacks were tried"
[ -z "$got" ] || escaped "as root of a system of its own:$got"
exit 0
