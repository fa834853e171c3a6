#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes src/carrel/_sync of src/carrel/_async: the same client without async and await.

    tools/make_sync.py            writes it
    tools/make_sync.py --check    says whether it is what it should be"""
import os
import re
import sys

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src", "carrel")
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Made by tools/make_sync.py of carrel/_async: change it there.\n"
WORDS = [(r"\basync (def|with|for)\b", r"\1"), (r"\bawait ", ""), (r"\bAsync(Carrel|Command|Workspace|Files|Plan|OpenPlan|Operations|Connection|Env|Tools)\b", r"\1"),
         (r"\bhttpx\.Async(Client|HTTPTransport)\b", r"httpx.\1"), (r"\bAsync(Iterator|Generator)\b", r"\1"), (r"\bIterator, Iterable, Iterator\b", "Iterable, Iterator"),
         (r"(\bGenerator\[[^\n]*), None\]", r"\1, None, None]"), (r"\basynccontextmanager\b", "contextmanager"), (r"\baclosing\b", "closing"),
         (r"\b__a(enter|exit|iter)__\b", r"__\1__"), (r"\ba(close|read)\(", r"\1("), (r"\baiter_bytes\b", "iter_bytes"),
         (r"\basyncio\.sleep\b", "time.sleep"), (r"^import asyncio\n((.*\n)*)(import time)\n", r"\1\3\n"), (r"^import asyncio$", "import time"),
         (r"`async with\b", "`with")]


def sync(text):
    for pattern, new in WORDS:
        text = re.sub(pattern, new, text, flags=re.M)
    return HEAD + text.split("\n", 1)[1]


def main():
    stale = []
    for name in sorted(os.listdir(f"{HERE}/_async")):
        if not name.endswith(".py"):
            continue
        with open(f"{HERE}/_async/{name}", encoding="utf-8") as file:
            made = sync(file.read()) if name != "__init__.py" else HEAD
        path = f"{HERE}/_sync/{name}"
        old = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if old == made:
            continue
        stale.append(path)
        if "--check" not in sys.argv:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(made)
    if stale and "--check" in sys.argv:
        sys.exit(f"not what make_sync.py makes: {', '.join(stale)}")


main()
