#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 1800
# TAKES: 10
# BASE
"""The template `browser`. What points Playwright at Debian's Chromium, on a made-up system; and in the long run the template
itself, built from its registries: pages inside and outside, clicked through from Node and from Python."""
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import unittest

from carreltest import CARREL, PATIENCE, ROOT, TMP, read, write
from nettest import Names
from systemtest import SystemDaemonTest

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FULL = os.environ.get("LONG") == "1"
LONG = 100 * PATIENCE
PAGES = {
    "/": "<!doctype html><meta charset=utf-8><title>one</title><style>body{margin:0}div{height:100px}</style>"
         "<div style='background:#f00'></div><div style='background:#00f'></div><a href=form.html>next</a>",
    "/form.html": "<!doctype html><meta charset=utf-8><title>two</title><form action=done.html><input name=word><button>send</button></form>",
    "/done.html": "<!doctype html><meta charset=utf-8><title>three</title><h1 id=said></h1><p>日本語 😀</p><a href=data.bin download>get</a>"
                  "<script>said.textContent = new URLSearchParams(location.search).get('word')</script>",
    "/data.bin": "downloaded"}
SCRIPTS = {"py": r"""
import sys
from playwright.sync_api import sync_playwright
site, out, closed = sys.argv[1:]
with sync_playwright() as p:
    browser = p.chromium.launch()
    context = browser.new_context(viewport={"width": 320, "height": 240}, record_video_dir=out + "/video")
    page = context.new_page()
    page.goto(site)
    page.screenshot(path=out + "/shot.png")
    page.click("a")
    page.fill("input", "a word")
    page.click("button")
    page.wait_for_function("document.title == 'three'")
    print(page.title(), page.inner_text("#said"))
    with page.expect_download() as begun:
        page.click("a")
    begun.value.save_as(out + "/data.bin")
    page.pdf(path=out + "/page.pdf")
    try:
        page.goto(closed, timeout=20000)
        print("reached")
    except Exception:
        print("refused")
    context.close()
    browser.close()
""", "js": r"""
const { chromium } = require('playwright-core');
const [site, out, closed] = process.argv.slice(2);
(async () => {
  const browser = await chromium.launch();
  const page = await browser.newPage({ viewport: { width: 320, height: 240 } });
  await page.goto(site);
  await page.screenshot({ path: out + '/shot.png' });
  await page.click('a');
  await page.fill('input', 'a word');
  await page.click('button');
  await page.waitForFunction("document.title == 'three'");
  console.log(await page.title(), await page.innerText('#said'));
  const [begun] = await Promise.all([page.waitForEvent('download'), page.click('a')]);
  await begun.saveAs(out + '/data.bin');
  await page.pdf({ path: out + '/page.pdf' });
  console.log(await page.goto(closed, { timeout: 20000 }).then(() => 'reached', () => 'refused'));
  await browser.close();
})();
"""}


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = PAGES.get(self.path.split("?")[0], "").encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/octet-stream" if self.path.endswith(".bin") else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Pointing(unittest.TestCase):
    def test_playwright_finds_debians_chromium(self):
        import tempfile
        with tempfile.TemporaryDirectory(dir=TMP) as top:
            package = f"{top}/usr/local/lib/python3.11/dist-packages/playwright/driver/package"
            os.makedirs(package)
            write(f"{package}/browsers.json", json.dumps({"browsers": [{"name": "chromium-headless-shell", "revision": "7"}, {"name": "webkit", "revision": "8"}]}))
            for _ in range(2):
                subprocess.run([sys.executable, f"{SRC}/packaging/templates/browser.point.py", top], check=True, timeout=PATIENCE)
            self.assertEqual(["chromium_headless_shell-7"], os.listdir(f"{top}/opt/playwright"))
            found, = (os.path.join(where, name) for where, _, names in os.walk(f"{top}/opt/playwright") for name in names if "INST" not in name)
            self.assertEqual("/usr/lib/chromium/chromium", os.readlink(found))
            self.assertEqual("/usr/local/lib/python3.11/dist-packages/playwright/driver/package",
                             os.readlink(f"{top}/usr/local/lib/node_modules/playwright-core"))
            self.assertIn("--no-sandbox", read(f"{top}/etc/chromium.d/carrel"))


@unittest.skipUnless(FULL, "LONG=1: it fetches and installs a browser")
class Browser(SystemDaemonTest):
    def setUp(self):
        self.site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
        threading.Thread(target=self.site.serve_forever, daemon=True).start()
        self.addCleanup(self.site.server_close)
        self.addCleanup(self.site.shutdown)
        self.port = self.site.server_address[1]
        self.names = Names({"site.example.org": ["127.0.0.1"], "closed.example.net": ["127.0.0.1"]})
        self.addCleanup(self.names.close)
        # The names of the registries are looked up where this host does.
        self.options = ("--set", f"network_private=site.example.org:{self.port}")
        super().setUp()
        self.env = {**os.environ, "CARREL_SOCKET": self.daemon.socket, "HOME": self.dir}

    def test_pages_are_clicked_through_inside_and_outside(self):
        self.do_as_the_document_says()
        self.daemon.stop()
        self.daemon.options = (*self.options, "--set", f"nameservers={self.names.address}")
        self.daemon.start()
        limits = {"limits": {"memory": "2G", "pids": 400}} if ROOT else {}
        self.workspace(id="desk", template="browser", policy={"network": {"allow": [f"site.example.org:{self.port}"]}, **limits})
        for path, text in {**{f"/site{path if path != '/' else '/index.html'}": text for path, text in PAGES.items()},
                           **{f"/go.{kind}": script for kind, script in SCRIPTS.items()}}.items():
            self.assertIn(self.daemon.request("PUT", f"/v1/workspaces/desk/files{path}", text.encode()).status, (200, 201))
        self.daemon.post("/v1/workspaces/desk/exec", {"command": "cd /site && python3 -m http.server -b 127.0.0.1 8080", "background": True})
        for kind, program in (("py", "python3"), ("js", "node")):
            for place, site in (("inside", "http://127.0.0.1:8080/"), ("outside", f"http://site.example.org:{self.port}/")):
                with self.subTest(kind=kind, place=place):
                    self.check_one(f"{program} /go.{kind}", site, f"/{place}-{kind}")
        self.check_the_ledger()
        self.assertEqual(1, len(self.inside("ls /inside-py/video/*.webm").splitlines()))
        self.check_the_page_of_a_person()

    def do_as_the_document_says(self):
        """Which builds the template."""
        block, = re.findall(r"^```shell\n(.*?)^```$", read(f"{SRC}/docs/machines.md"), re.M | re.S)
        env = {**self.env, "PATH": f"{os.path.dirname(CARREL)}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-ec", block], cwd=self.dir, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LONG, check=False)
        self.assertEqual(0, done.returncode, done.stdout[-3000:])
        with open(self.path("page.png"), "rb") as file:
            self.assertEqual(b"\x89PNG", file.read(4))

    def inside(self, command, workspace="desk"):
        done = self.daemon.execute(workspace, command, timeout_ms=LONG * 1000)
        self.assertEqual(0, done["exit_code"], done["stdout"][-2000:] + done["stderr"][-2000:])
        return done["stdout"]

    def check_one(self, program, site, out):
        said = self.inside(f"mkdir -p {out}; {program} {site} {out} http://closed.example.net:{self.port}/")
        self.assertEqual("three a word\nrefused\n", said)
        self.assertEqual(b"downloaded", self.daemon.get(f"/v1/workspaces/desk/files{out}/data.bin").bytes)
        self.inside(f"ffmpeg -loglevel error -i {out}/shot.png -f rawvideo -pix_fmt rgb24 {out}/shot.rgb; pdftotext {out}/page.pdf {out}/page.txt")
        pixels = self.daemon.get(f"/v1/workspaces/desk/files{out}/shot.rgb").bytes
        self.assertEqual(320 * 240 * 3, len(pixels))
        for x, y, colour in ((5, 5, (255, 0, 0)), (310, 95, (255, 0, 0)), (5, 105, (0, 0, 255)), (310, 195, (0, 0, 255)), (310, 230, (255, 255, 255))):
            at = 3 * (320 * y + x)
            self.assertEqual(colour, tuple(pixels[at:at + 3]), (x, y))
        text = self.daemon.get(f"/v1/workspaces/desk/files{out}/page.txt").bytes.decode()
        self.assertIn("a word", text)
        self.assertIn("日本語", text)

    def check_the_ledger(self):
        rows = self.daemon.get("/v1/workspaces/desk/net").json["records"]
        self.assertIn("closed.example.net", {row["details"]["host"] for row in rows if row["operation"] == "net.refuse"})
        self.assertEqual({"site.example.org"}, {row["details"]["host"] for row in rows if row["operation"] == "net.open"})

    def check_the_page_of_a_person(self):
        """Of DevTools: over an address that is for one key, or for who knows it; nobody else's."""
        self.workspace(id="shown", template="browser")
        self.daemon.post("/v1/workspaces/shown/exec", {"command": "chromium --headless --remote-debugging-port=9222 about:blank", "background": True})
        self.inside("until python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:9222/json/version\")' 2>/dev/null; do sleep 0.2; done", "shown")
        port = self.daemon.post("/v1/workspaces/shown/ports/9222", {}).json
        path = port["path"] + "json/version"
        answer = self.daemon.get(path)
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertIn("Chrome", answer.json["Browser"])
        self.assertEqual(401, self.daemon.get(path, key="ck_nobody").status)


if __name__ == "__main__":
    unittest.main()
