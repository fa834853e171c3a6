# SPDX-License-Identifier: Apache-2.0
"""Which public methods of a package's classes were run, by the code that Python enters: none is left out because nobody thought of it. Those
that docs/from-e2b.md lists under "What there is not" (E2B_TEST_NOT: their names as JavaScript has them) need not be."""
import inspect
import os
import re
import sys
import threading
import unittest

seen = set()


def note(frame, event, _):
    if event == "call":
        seen.add(frame.f_code)


def begin():
    threading.setprofile(note)
    sys.setprofile(note)


def functions(cls, name):
    """What may run when it is called: class_method_variant has one for the instance and one for the class."""
    found = inspect.getattr_static(cls, name)
    each = [getattr(found, "method", None), getattr(found, "__func__", None), getattr(found, "fget", None), found]
    return [inspect.unwrap(f).__code__ for f in each if inspect.isfunction(f)]


def not_driven(*classes):
    without = set(os.environ["E2B_TEST_NOT"].split())
    left = []
    for cls in classes:
        for name in dir(cls):
            codes = [] if name.startswith("_") else functions(cls, name)
            in_docs = re.sub(r"_(\w)", lambda m: m[1].upper(), name) in without
            if codes and not in_docs and not any(code in seen for code in codes):
                left.append(f"{cls.__name__}.{name}")
    return left


class Ordered(unittest.TestLoader):
    """The last one looks back at all."""

    def loadTestsFromModule(self, module, *args, **kwargs):
        tests = list(super().loadTestsFromModule(module, *args, **kwargs))
        return unittest.TestSuite(sorted(tests, key=lambda suite: any("Surface" in type(test).__name__ for test in suite)))
