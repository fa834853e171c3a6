#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""`--policy .srt-settings.json`: what such a file denies is denied, in its order of precedence, or refused in words."""
import json
import os
import unittest

from carreltest import PYTHON, carrel, write
from network_names import FETCH, NamesTest


class Srt(NamesTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("desk/.git/hooks"))
        for name in (".env", "code.py", ".bashrc"):
            write(self.path("desk", name), "old\n")
        for name in ("beside", "shared"):
            os.mkdir(self.path(name))
            write(self.path(name, "file"), f"{name}\n")

    def settings(self, network=None, top=None, **filesystem):
        return write(self.path(".srt-settings.json"), json.dumps({
            "network": {"allowedDomains": [], "deniedDomains": [], **(network or {})},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": [], **filesystem}, **(top or {})}))

    def run_with(self, path, *command, workspace="desk", options=()):
        return carrel("run", "--workspace", self.path(workspace), "--policy", path, *options, "--", *command, cwd=self.dir)

    def shell(self, path, line):
        return self.run_with(path, "sh", "-c", line).stdout

    def refuses(self, path, *words, **more):
        self.one_line(self.run_with(path, "true", **more), *words)

    # --- files ---

    def test_write_is_what_is_listed_and_deny_wins(self):
        path = self.settings(allowWrite=[".", self.path("beside"), self.path("not-there")], denyWrite=[".env", self.path("beside/file")],
                             allowRead=[self.path("shared")])
        tries = {"/code.py": True, "/.env": False, "/.git/hooks/pre-commit": False, "/.bashrc": False,
                 self.path("beside/new"): True, self.path("beside/file"): False, self.path("shared/new"): False}
        for at, may in tries.items():
            self.assertEqual("yes\n" if may else "no\n", self.shell(path, f"echo x 2>/dev/null > {at} && echo yes || echo no"), at)
        self.assertEqual("shared\n", self.shell(path, f"cat {self.path('shared/file')}"))
        with open(self.path("desk/.env"), encoding="ascii") as file:
            self.assertEqual("old\n", file.read())

    def test_what_is_denied_to_readers_is_not_seen(self):
        home = self.path("home")
        os.makedirs(f"{home}/.ssh")
        write(f"{home}/.ssh/id", "key\n")
        path = self.settings(denyRead=["~/.ssh", "/etc/shadow", self.path("beside"), self.dir], allowRead=["."])
        done = carrel("run", "--workspace", self.path("desk"), "--policy", path, "--", "cat", f"{home}/.ssh/id", cwd=self.dir, env={**os.environ, "HOME": home})
        self.assertIn("No such file", done.stderr)
        self.assertEqual("old\n", self.shell(path, "cat /code.py"))

    def test_what_cannot_be_kept_is_refused_in_words(self):
        for more, words in (
                ({"denyRead": ["./.env"]}, ("denyRead", ".env", "as a whole")),
                ({"denyRead": [self.dir]}, ("denyRead", "as a whole")),
                ({"denyRead": ["/"], "allowRead": ["."]}, ("denyRead",)),
                ({"denyRead": [self.path("shared/file")], "allowRead": [self.path("shared")]}, ("denyRead",)),
                ({"denyRead": ["/usr/lib"]}, ("denyRead", "/usr/lib")),
                ({"denyWrite": ["."]}, ("denyWrite", "--plan")),
                ({"denyWrite": [".npmrc"]}, ("denyWrite", ".npmrc", "not there")),
                ({"denyWrite": ["**/.env"]}, ("denyWrite", "pattern")),
                ({"allowWrite": []}, ("allowWrite", '"."')),
                ({"allowWrite": [".", "/usr"]}, ("allowWrite", "/usr")),
                ({"allowWrite": [".", self.dir]}, ("allowWrite", "workspace")),
                ({"allowWrite": "."}, ("allowWrite", "list of texts")),
                ({"allowWrite": [7]}, ("allowWrite", "list of texts")),
                ({"disabled": True}, ("disabled", "cannot be kept")),
                ({"allowWrites": ["."]}, ("unknown key", "allowWrites")),
                ({"network": {"httpProxyPort": 8080}}, ("httpProxyPort", "proxy")),
                ({"network": {"deniedResolvedAddresses": ["203.0.113.0/24"]}}, ("deniedResolvedAddresses",)),
                ({"network": {"allowedDomains": ["localhost:8080"]}}, ("allowedDomains", "localhost")),
                ({"network": {"allowedDomains": ["203.0.113.7"]}}, ("allowedDomains", "address")),
                ({"network": {"allowedDomains": ["*.com"]}}, ("allowedDomains", "*.com")),
                ({"network": {"allowedDomains": ["a.example.org"], "deniedDomains": ["203.0.113.7"]}}, ("deniedDomains", "address")),
                ({"network": {"allowedDomains": ["!a.example.org"]}}, ("allowedDomains", "'!'")),
                ({"top": {"credentials": {"files": [{"path": "~/.netrc", "mode": "mask"}]}}}, ("credentials",)),
                ({"top": {"filesytem": {}}}, ("unknown key", "filesytem"))):
            with self.subTest(words=words):
                self.refuses(self.settings(**more), "srt's settings", *words)
        self.refuses(write(self.path("half.json"), '{"filesystem": {}}'), "network")
        self.refuses(write(self.path("list.json"), '{"network": {"allowedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": ["."]}}'),
                     "deniedDomains", "list of texts")

    def test_what_means_nothing_here_is_taken(self):
        path = self.settings({"allowUnixSockets": ["/run/x"], "strictAllowlist": True, "deniedDomainReasons": {"a": "b"}, "deniedResolvedAddresses": []},
                             {"enableWeakerNestedSandbox": True, "ripgrep": {"command": "rg"}, "credentials": {}})
        self.assertEqual("old\n", self.shell(path, "cat /code.py"))

    # --- names ---

    def test_denied_domains_win(self):
        port = self.web.port
        rows = ((["*.example.org"], ["api.example.org"], {"www.example.org": True, "api.example.org": False, "example.org": False}),
                (["*.example.org"], ["*"], {"www.example.org": False}),
                ([f"*.example.org:{port}"], [f"*:{port}", "127.0.0.1", "localhost"], {"www.example.org": False}),
                ([f"*.example.org:{port}"], ["*:22"], {"www.example.org": True}),
                ([], [], {"www.example.org": False}))
        for allowed, denied, names in rows:
            path = self.settings({"allowedDomains": allowed, "deniedDomains": denied})
            script = "import socket, sys\nfor n in sys.argv[1:]:\n    try: print(n, socket.gethostbyname(n).startswith('198.1'))\n    except OSError: print(n, False)\n"
            done = self.run_with(path, PYTHON, "-c", script, *names)
            told = dict(line.split() for line in done.stdout.splitlines())
            want = {name: str(may) for name, may in names.items()}
            self.assertEqual(want, told, (allowed, denied))
        path = self.settings({"allowedDomains": ["www.example.org", f"www.example.org:{port}"], "deniedDomains": [f"*:{port}"]})
        done = self.run_with(path, PYTHON, "-c", FETCH, self.url("www.example.org"), options=["--json"])
        self.assertIn("a rule denies it", done.stdout)
        self.assertEqual([], self.web.seen)


if __name__ == "__main__":
    unittest.main()
