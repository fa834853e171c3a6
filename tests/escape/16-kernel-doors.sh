#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 16: bpf, perf_event_open, userfaultfd, kexec, loading a module
# MUST: EPERM or ENOSYS
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- doors kernel
