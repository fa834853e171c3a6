#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 45
"""All of integration/egress.py with the carrel-egress that has ASan and UBSan in it."""
import os
import sys

EGRESS = os.path.join(os.path.dirname(os.environ["CARREL_ASAN"]), "carrel-egress")
OPTIONS = {"EGRESS": EGRESS, "ASAN_OPTIONS": "exitcode=86:detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:exitcode=86:print_stacktrace=1"}

# The sanitized build must be one: without the run-time linked in, all below would prove nothing.
with open(EGRESS, "rb") as program:
    if b"__asan_init" not in program.read():
        sys.exit("this build of carrel-egress is not sanitized")
script = os.path.join(os.environ["SRC"], "tests", "integration", "egress.py")
os.execve(sys.executable, [sys.executable, "-B", script], os.environ | OPTIONS)
