#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Has Playwright find Debian's Chromium and ffmpeg where it looks for its own, so that scripts need not say where they are; and
Node programs find the Playwright, and the Node, that the Python package brings."""
import glob
import json
import os
import platform
import sys

top = sys.argv[1] if len(sys.argv) > 1 else ""  # of the system
driver, = glob.glob(f"{top}/usr/local/lib/python3*/dist-packages/playwright/driver")
cpu = {"x86_64": "linux64", "aarch64": "linux-arm64"}[platform.machine()]
PLACES = {"chromium": (f"chrome-{cpu}/chrome", "/usr/lib/chromium/chromium"),
          "chromium-headless-shell": (f"chrome-headless-shell-{cpu}/chrome-headless-shell", "/usr/lib/chromium/chromium"),
          "ffmpeg": ("ffmpeg-linux", "/usr/bin/ffmpeg")}


def link(path, to):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(to, path)


with open(f"{driver}/package/browsers.json", encoding="utf-8") as file:
    for browser in json.load(file)["browsers"]:
        if browser["name"] in PLACES:
            place, program = PLACES[browser["name"]]
            link(f"{top}/opt/playwright/{browser['name'].replace('-', '_')}-{browser['revision']}/{place}", program)
            with open(f"{top}/opt/playwright/{browser['name'].replace('-', '_')}-{browser['revision']}/INSTALLATION_COMPLETE", "w"):
                pass
link(f"{top}/usr/local/bin/node", f"{driver}/node"[len(top):])
link(f"{top}/usr/local/lib/node_modules/playwright-core", f"{driver}/package"[len(top):])
# The sandbox of Carrel is the boundary: Chromium's own would need namespaces that are closed in it.
os.makedirs(f"{top}/etc/chromium.d", exist_ok=True)
with open(f"{top}/etc/chromium.d/carrel", "w", encoding="ascii") as file:
    file.write('export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox"\n')
