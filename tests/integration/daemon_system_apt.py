#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 60
# BASE
"""sudo apt-get install in a workspace of the daemon, through the list of names: there after sleep and kill, and nowhere else."""
import os
import signal
import unittest

from carreltest import read
from systemtest import BASE, SystemDaemonTest

PACKAGES = ["poppler-utils", *(["tesseract-ocr"] if os.environ.get("LONG") else [])]
SMOKE = " && ".join(["pdftotext -v", *(["tesseract --version"] if os.environ.get("LONG") else [])])
PDF = r"""printf '%%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj
4 0 obj<</Length 40>>stream\nBT /F 24 Tf 20 40 Td (Invoice 42) Tj ET \nendstream endobj\ntrailer<</Root 1 0 R>>\n' > /a.pdf; pdftotext /a.pdf - 2>/dev/null"""


class Apt(SystemDaemonTest):
    def line(self, command, workspace="desk"):
        done = self.daemon.execute(workspace, command)
        return done["exit_code"], done["stdout"] + done["stderr"]

    def test_sudo_apt_get_install(self):
        policy = {"system": True, "network": {"allow": ["@debian"]}}
        self.workspace(id="desk", policy=policy)
        self.workspace(id="other", policy=policy)
        host = "/var/lib/dpkg/status"
        before = read(host) if os.path.exists(host) else ""
        code, said = self.line(f"sudo apt-get update -q && sudo apt-get install -qy --no-install-recommends {' '.join(PACKAGES)}")
        self.assertEqual(0, code, said[-3000:])
        self.check("at once")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sleep").status)
        self.check("after sleep")
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.check("after a kill")
        self.assertEqual(before, read(host) if before else "", "the host's dpkg has heard of it")
        self.assertEqual((1, ""), self.line("command -v pdftotext", "other"))
        self.assertFalse(os.path.lexists(f"{BASE}/usr/bin/pdftotext"))
        asked = [r["details"]["command"] for r in self.daemon.audit() if r["operation"] == "exec.sudo"]
        self.assertEqual("apt-get update -q", asked[0])

    def check(self, when):
        with self.subTest(when=when):
            self.assertEqual(0, self.line(SMOKE)[0])
            self.assertIn("Invoice 42", self.line(PDF)[1])


if __name__ == "__main__":
    unittest.main()
