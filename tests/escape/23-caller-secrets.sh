#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 23: search every process's environment and arguments, the auxiliary vector, all memory and the key lists
# MUST: the caller's token is nowhere
# INV-7
# CONTROL: env

# shellcheck source=/dev/null
. "$TESTLIB"

token=token-$$-$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
export API_TOKEN=$token AWS_SECRET_ACCESS_KEY=$token LD_LIBRARY_PATH=/nowhere/$token GIT_ASKPASS=$token
backwards=$(/usr/bin/python3 -c 'import sys; print(sys.argv[1][::-1])' "$token")
judge attack -- secrets "$backwards"
