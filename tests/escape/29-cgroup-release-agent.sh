#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 29: mount a cgroup hierarchy and write its release_agent (CVE-2022-0492)
# MUST: EPERM, and no cgroup file system in sight
# CONTROL: seccomp,caps
# CONTROL-root: seccomp,caps,ids

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- mounts cgroup
