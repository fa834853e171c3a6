#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 18: have a traced child make calls that are refused, put in when the kernel has begun with a permitted one
# MUST: the filter looks at what is made in the end
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- helpers rewrite
