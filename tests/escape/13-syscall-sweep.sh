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

/usr/bin/python3 - "$TMP/explain" "$TMP/sweep" <<'END'
import glob, json, re, sys

filter = json.load(open(sys.argv[1]))["filter"]
lines = open(sys.argv[2]).read().splitlines()
assert lines[-1] == "swept" and len(lines) == 1025, lines[-1]
ends = {int(line.split()[1]): line.split() for line in lines[:-1]}
reached = {number for number, end in ends.items() if end[0] == "reached"}

numbers = {  # calls newer than Debian 12's headers
    "cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453, "futex_wake": 454, "futex_wait": 455,
    "futex_requeue": 456, "statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460,
    "lsm_list_modules": 461, "mseal": 462, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465,
    "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469,
}
for header in glob.glob("/usr/include/*/asm/unistd_64.h") or ["/usr/include/asm-generic/unistd.h"]:
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", open(header).read())
    numbers |= {name: int(number) for name, number in found}
names = {number: name for name, number in numbers.items()}

def spell(some):
    return ", ".join(f"{names.get(number, '?')} ({number})" for number in sorted(some))

def listed(key):
    assert all(name in numbers for name in filter[key]), f"no number known for {set(filter[key]) - set(numbers)}"
    return {numbers[name] for name in filter[key]}

# Two calls belong to the kernel's own tracing and pass every filter by its decree: uretprobe and uprobe.
wrong = reached - listed("allowed") - listed("checked") - {335, 336}
kept = {number for number in listed("allowed") - reached if ends[number][1:] != [str(number), "ENOSYS"]}
soft = {number for number in listed("refused") if ends[number][-1] != "EPERM"}
print(f"{len(reached)} reached, {len(ends) - len(reached)} refused")
print(f"listed as allowed, but this kernel does not have them: {spell(listed('allowed') - reached - kept)}")
print(f"decided by their arguments, and refused with junk: {spell(listed('checked') - reached)}")
for text, some in (
    ("reached the kernel, but are not listed as allowed", wrong),
    ("are listed as refused, but were not with EPERM", soft),
    ("are listed as allowed, but are refused", kept),
):
    if some:
        print(f"ESCAPED: {text}: {spell(some)}")
sys.exit(1 if wrong or soft or kept else 0)
END
[ "$(inside -- /bin/echo alive)" = alive ] || unclear "no sandbox starts after the sweep"
