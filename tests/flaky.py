# SPDX-License-Identifier: Apache-2.0
"""Remembers, from one run to the next, which tests failed and passed when they were repeated alone.

A test that did so once is named FLAKY and counts as passed; in the next run in which it does so again it has failed.
"""

import json
import os
import re
import shutil


class Flaky:
    def __init__(self, build):
        self.path, self.logs = f"{build}/flaky.json", f"{build}/flaky"
        self.now = {}  # test and identity: the log of how it failed
        try:
            with open(self.path, encoding="utf-8") as file:
                self.before = json.load(file)
        except FileNotFoundError:
            self.before = {}

    def add(self, name, log):
        """Takes the log of its failure. Whether it was FLAKY in the run before as well."""
        os.makedirs(self.logs, exist_ok=True)
        words = re.sub(r"[^\w.-]+", ".", name).strip(".")
        self.now[name] = f"{self.logs}/{words}.log"
        with open(self.now[name], "wb") as copy:
            if os.path.exists(log):
                with open(log, "rb") as first:
                    shutil.copyfileobj(first, copy)
        return name in self.before

    def save(self, ran):
        """Of tests that this run left out, what is known of them stays."""
        kept = {name: log for name, log in self.before.items() if name not in ran} | self.now
        if kept != self.before:
            with open(f"{self.path}.new", "w", encoding="utf-8") as file:
                json.dump(kept, file, indent=1)
            os.rename(f"{self.path}.new", self.path)
