#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 9: unshare each kind of namespace
# MUST: EPERM
# CONTROL: seccomp,nested-userns

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- namespaces unshare
