#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 84: watch the host by fanotify on whole mounts; take all inotify instances
# MUST: fanotify is EPERM; inotify works on the sandbox's own files and meets its limit
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- watch
