#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""The tests that take most ways through carrel itself, with the build that has ASan and UBSan in it."""
import os
import subprocess
import sys

INTEGRATION = os.path.join(os.environ["SRC"], "tests", "integration")
TESTS = ("bad_input.py", "policy_file.py", "command_line.py", "explain_runs_nothing.py", "json_result.py", "network_names.py")


def main():
    env = dict(os.environ, CARREL=os.environ["CARREL_ASAN"], ASAN_OPTIONS="exitcode=86:detect_leaks=1",
               UBSAN_OPTIONS="halt_on_error=1:exitcode=86:print_stacktrace=1")
    # The sanitized build must be one: without the run-time linked in, all below would prove nothing.
    with open(env["CARREL"], "rb") as file:
        if b"__asan_init" not in file.read():
            sys.exit("this build of carrel is not sanitized")
    failed = []
    for name in TESTS:
        if subprocess.run([sys.executable, "-B", os.path.join(INTEGRATION, name)], env=env, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed with the sanitized build: {failed}")


main()
