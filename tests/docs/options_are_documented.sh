#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The options of `carrel run --help` are those of its man page and of each shell completion: none missing, none invented.
set -u
options() { grep -oE -- '(^|[^[:alnum:]-])--[a-z][a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u; }

{ "$CARREL" run --help && echo " --help"; } | options >"$TMP/help"
[ "$(wc -l <"$TMP/help")" -gt 1 ] || { echo "carrel run --help names no option" && exit 1; }
sed -E 's/\.It Fl \\-/.It --/; s/Fl \\-/--/g' "$SRC/man/carrel-run.1" | options >"$TMP/man"
sed -n '/^    --workspace/,/^}/p; /compgen -W .--workspace/,/cur/p' "$SRC/packaging/completion/carrel.bash" | options >"$TMP/bash"
sed -n '/^    run)/,/;;/p' "$SRC/packaging/completion/_carrel" | options >"$TMP/zsh"
sed -nE "s/.*verb run' .*-l ([a-z-]+).*/--\1/p" "$SRC/packaging/completion/carrel.fish" | sort -u >"$TMP/fish"

bad=0
for where in man bash zsh fish; do
    if difference=$(diff "$TMP/help" "$TMP/$where" | grep '^[<>]'); then
        printf '%s: < only in --help, > only there\n%s\n' "$where" "$difference"
        bad=1
    fi
done
exit $bad
