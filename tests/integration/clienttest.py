# SPDX-License-Identifier: Apache-2.0
"""What the tests of the client packages share."""
import os
import subprocess

SRC = os.environ["SRC"]


def run(argv, timeout=120, **how):
    """Its output; a failure is the test's, with what it said."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False, **how)
    assert done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout
