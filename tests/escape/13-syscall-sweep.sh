#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 13: call every number from 0 to 1023 with junk arguments, a process for each
# MUST: only what the filter's printed list allows reaches the kernel; the host stays alive
# CONTROL: seccomp
# TIMEOUT: 180

# shellcheck source=/dev/null
. "$TESTLIB"

"$CARREL" run --level ns --workspace "$WS" --explain --json -- /bin/true >"$TMP/explain"
attack -- sweep >"$TMP/sweep" || unclear "the sweep ended with $?"

status=0
/usr/bin/python3 - "$TMP/explain" "$TMP/sweep" <<'END' || status=$?
import glob, json, re, sys

allowed = json.load(open(sys.argv[1]))["filter"]["allowed"]
lines = open(sys.argv[2]).read().splitlines()
assert lines[-1] == "swept" and len(lines) == 1025, lines[-1]
reached = {int(line.split()[1]) for line in lines if line.startswith("reached ")}
refused = [line.split() for line in lines if line.startswith("refused ")]

numbers = {  # calls newer than Debian 12's headers
    "cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453, "futex_wake": 454, "futex_wait": 455,
    "futex_requeue": 456, "statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460,
    "lsm_list_modules": 461, "mseal": 462, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465,
    "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469,
}
for header in glob.glob("/usr/include/*/asm/unistd_64.h") + ["/usr/include/asm-generic/unistd.h"]:
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", open(header).read())
    numbers |= {name: int(number) for name, number in found}
    break
names = {number: name for name, number in numbers.items()}

def spell(some):
    return ", ".join(f"{names.get(number, '?')} ({number})" for number in sorted(some))

unknown = [name for name in allowed if name not in numbers]
assert not unknown, f"no number known for {unknown}"
listed = {numbers[name] for name in allowed}
print(f"{len(listed)} listed, {len(reached)} reached, {len(refused)} refused")
print(f"listed, but not reached with junk: {spell(listed - reached)}")
if reached - listed:
    print(f"ESCAPED: reached the kernel, but are not listed: {spell(reached - listed)}")
    sys.exit(1)
END
case $status in
    0) [ "$(inside -- /bin/echo alive)" = alive ] || unclear "no sandbox starts after the sweep" ;;
    1) grep -q swept "$TMP/sweep" && exit 1 ;;
esac
exit "$status"
