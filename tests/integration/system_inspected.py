#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# BASE
"""Rules that look at requests, over a system of the workspace's own: its programs trust the sandbox's authority beside
those that the system trusts, by variables and where they look by themselves, and nothing of that stays in the layer."""
import os
import unittest

from carreltest import CarrelTest, write
from network_inspected import API, VALUE
from nettest import Names
from systemtest import BASE, SystemTest
from tlstest import Authority, TlsWeb

STORE = "/etc/ssl/certs/ca-certificates.crt"
FETCH = "/usr/lib/apt/apt-helper -o Acquire::Retries=0 -o APT::Sandbox::User=root download-file"


class Inspected(SystemTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.path("authority"))
        self.web = TlsWeb(self.authority.context(API))
        self.names = Names({API: ["127.0.0.1"]})
        write(self.path("key"), VALUE + "\n")
        os.chmod(self.path("key"), 0o600)
        self.options = ["--nameserver", self.names.address, "--allow-private", API, "--trust", self.authority.file,
                        "--secret", f"example-key={self.path('key')}", "--allow", f"{API}:{self.web.port} secret=example-key paths=/v1/*"]

    def tearDown(self):
        self.web.close()
        self.names.close()
        super().tearDown()

    def ok(self, done):
        self.assertEqual(0, done.returncode, done)
        return done.stdout

    def seen(self):
        return [(path, headers.get("authorization")) for _, path, headers, _ in self.web.seen]

    def test_apt_trusts_it_and_sends_the_secret(self):
        url = f"https://{API}:{self.web.port}/v1/list"
        script = f'echo "machine {API} login $EXAMPLE_KEY" >/dev/null; {FETCH} {url} /tmp/got >/dev/null; cat /tmp/got'
        for as_who in (self.user, self.root):
            self.assertIn("/v1/list", self.ok(as_who(script, options=self.options)))
        self.assertEqual(["/v1/list"] * 2, [path for path, _ in self.seen()])
        self.assertIn("/v1/list", self.ok(self.user("unset SSL_CERT_FILE CURL_CA_BUNDLE; " + script, options=self.options)))

    def test_a_secret_goes_out_and_does_not_come_back(self):
        script = (f'printf "GET /v1/x HTTP/1.1\\r\\nHost: {API}:{self.web.port}\\r\\nAuthorization: Bearer $EXAMPLE_KEY\\r\\nConnection: close\\r\\n\\r\\n" | '
                  f'openssl s_client -quiet -verify_return_error -servername {API} -connect {API}:{self.web.port} 2>/dev/null; env')
        shown = self.ok(self.user(script, options=self.options))
        self.assertEqual([("/v1/x", f"Bearer {VALUE}")], self.seen(), shown)
        self.assertNotIn(VALUE, shown)

    def test_what_the_system_trusts_is_trusted_still(self):
        self.ok(self.root(f"echo '# mine' >> {STORE}"))
        shown = self.ok(self.user(f'cat $SSL_CERT_FILE; cmp $SSL_CERT_FILE {STORE} && tail -n +1 $NODE_EXTRA_CA_CERTS >/dev/null', options=self.options))
        with open(f"{BASE}{STORE}", encoding="ascii") as file:
            self.assertTrue(shown.startswith(file.read() + "# mine\n-----BEGIN CERTIFICATE-----\n"), shown[-3000:])

    def test_nothing_of_it_stays_and_root_inside_changes_nothing(self):
        shown = self.ok(self.root(f"for f in {STORE} $NODE_EXTRA_CA_CERTS; do echo x >> $f; rm -f $f; mv $f /tmp/f; done; rm -rf /run/carrel-ca; "
                                  "ls /run/carrel-ca; true", options=self.options))
        self.assertEqual("ca-bundle.crt\nca.crt\n", shown)
        self.assertEqual([], [name for _, _, files in os.walk(self.layer) for name in files])
        self.assertNotIn("carrel", self.ok(self.user("ls -d /run/carrel-ca; env | grep -v PATH | grep CERT || true")))

    def test_a_system_without_a_store_or_with_a_link_there_starts(self):
        for script in (f"rm {STORE}", f"ln -s /run/x {STORE}", f"rm {STORE}; mkdir {STORE}", f"rmdir {STORE}; mkfifo {STORE}",
                       "rm -r /etc/ssl/certs; ln -s /tmp /etc/ssl/certs", "rm -r /etc/ssl"):
            self.ok(self.root(script))
            self.assertIn("/v1/x", self.ok(self.user(
                f'printf "GET /v1/x HTTP/1.1\\r\\nHost: {API}:{self.web.port}\\r\\nConnection: close\\r\\n\\r\\n" | '
                f'openssl s_client -quiet -CAfile $SSL_CERT_FILE -verify_return_error -servername {API} -connect {API}:{self.web.port} 2>/dev/null',
                options=self.options)), script)


del CarrelTest
if __name__ == "__main__":
    unittest.main()
