#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# LONG
# TIMEOUT: 1800
"""killed_at_any_instant.py with an instant before every single system call."""
import os
import runpy

os.environ["LONG"] = "1"
runpy.run_path(os.path.join(os.environ["SRC"], "tests", "fault", "killed_at_any_instant.py"), run_name="__main__")
