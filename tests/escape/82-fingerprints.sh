#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 82: recognise the host by its uptime, boot id, kernel log, kernel symbols, command line, processor flaws
# MUST: absent, or the sandbox's own
# CONTROL: proc-own,proc-masks,time

# shellcheck source=/dev/null
. "$TESTLIB"

differs() { # PATH: what can be read inside must not be what the host has there
    local host ours
    host=$(cat "$1" 2>/dev/null) || return 0
    ours=$(inside -- /bin/cat "$1" 2>/dev/null) || return 0
    if [ -n "$ours" ] && [ "$ours" = "$host" ]; then
        echo "ESCAPED: $1 is the host's"
    fi
}

absent() { # PATH: nothing of what it holds; that a file is there which nobody may open tells nothing
    if [ -n "$(inside -- /bin/sh -c "cat $1 || ls $1/" 2>/dev/null)" ]; then
        echo "ESCAPED: $1 is there"
    fi
}

# The host's clocks count from its boot, the sandbox's from its own start.
clocks() {
    local script='import time
print(*(int(time.clock_gettime(clock)) for clock in (time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC)),
      int(float(open("/proc/uptime").read().split()[0])))'
    local host ours i names=(CLOCK_BOOTTIME CLOCK_MONOTONIC /proc/uptime)
    read -ra host < <(/usr/bin/python3 -c "$script")
    read -ra ours < <(inside -- /usr/bin/python3 -c "$script")
    [ ${#ours[@]} = 3 ] || unclear "no clocks inside"
    for i in 0 1 2; do
        if [ $((ours[i] - host[i])) -gt -3 ]; then echo "ESCAPED: ${names[i]} is the host's"; fi
    done
}

flaws() {
    local host
    host=$(grep -m1 ^bugs /proc/cpuinfo) || return 0
    if inside -- /bin/cat /proc/cpuinfo | grep -qxF "$host"; then echo "ESCAPED: /proc/cpuinfo tells the flaws"; fi
}

boot_time() {
    if inside -- /bin/grep btime /proc/stat | grep -qxF "$(grep btime /proc/stat)"; then
        echo "ESCAPED: /proc/stat tells when the host booted"
    fi
}

kernel_log() {
    if inside -- /bin/dmesg >/dev/null 2>&1; then echo "ESCAPED: dmesg shows the kernel's log"; fi
}

all() {
    [ "$(inside -- /bin/echo alive)" = alive ] || unclear "no sandbox"
    for path in /proc/sys/kernel/random/boot_id /etc/machine-id /proc/cmdline /proc/modules /proc/diskstats; do
        differs $path
    done
    for path in /proc/kallsyms /proc/kcore /proc/keys /proc/timer_list /sys/devices/system/cpu/vulnerabilities \
        /sys/class/dmi/id /dev/kmsg /proc/kmsg /proc/config.gz; do
        absent $path
    done
    clocks
    flaws
    boot_time
    kernel_log
    echo contained
}
judge all
