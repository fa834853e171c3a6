#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# LONG
# TIMEOUT: 1800
"""All that failing_system_calls.py leaves out: every system call a start makes."""
import os
import runpy

os.environ["LONG"] = "1"
runpy.run_path(os.path.join(os.environ["SRC"], "tests", "fault", "failing_system_calls.py"), run_name="__main__")
