#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ATTACK 31: sockets of the families VSOCK, PACKET, ALG, KEY, XDP, NETLINK other than route, and raw ones
# MUST: EAFNOSUPPORT, EPROTONOSUPPORT or EPERM, in any case no socket
# CONTROL: seccomp

# shellcheck source=/dev/null
. "$TESTLIB"

judge attack -- sockets families
