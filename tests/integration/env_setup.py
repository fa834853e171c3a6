#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""carrel env setup against a registry of our own: what it brings, and that nothing changes when it cannot."""
import hashlib
import json
import os
import resource
import ssl
import subprocess
import threading
import time
import unittest

from carreltest import CARREL, CarrelTest, read, write
from envtest import Registry, tarball, wheel

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class EnvSetup(CarrelTest):
    def setUp(self):
        super().setUp()
        self.registry = Registry()
        self.state = self.path("state")
        os.mkdir(self.state, 0o700)
        self.tools = f"{self.state}/.carrel/tools"

    def tearDown(self):
        self.registry.close()
        super().tearDown()

    def setup(self, *options, **kwargs):
        return self.registry.setup(self.state, *options, **kwargs)

    def bring(self, *options):
        done = self.setup(*options)
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        return done.stdout

    def fails(self, *words, options=()):
        """Nothing of what is there changes, nothing is left, and it says these words."""
        before = self.snapshot()
        done = self.setup(*options)
        self.assertEqual(125, done.returncode, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(before, self.snapshot())
        return done

    def snapshot(self):
        found = {}
        for where, _, files in os.walk(self.state):
            for name in files:
                path = os.path.join(where, name)
                if name != "tools.lock":
                    with open(path, "rb") as file:
                        found[path] = hashlib.sha256(file.read()).hexdigest()
        return found

    def listed(self):
        return json.loads(read(f"{self.tools}/tools.json"))

    def test_it_brings_all_three_and_is_up_to_date_then(self):
        self.registry.add_all()
        said = self.bring()
        self.assertEqual("uv 1.2.3 is there now\npip 25.0 is there now\nbun 1.0.1 is there now\n", said)
        self.assertEqual({"uv": "1.2.3", "pip": "25.0", "bun": "1.0.1"},
                         {name: tool["version"] for name, tool in self.listed().items()})
        for path in ("bin/uv", "libexec/uv", "libexec/uvx", "bin/bun"):
            self.assertEqual(0o755, os.stat(f"{self.tools}/{path}").st_mode & 0o7777, path)
        self.assertEqual("bun", os.readlink(f"{self.tools}/bin/bunx"))
        self.assertEqual(["pip-25.0-py3-none-any.whl"], os.listdir(f"{self.tools}/wheels"))
        self.assertEqual(0o700, os.stat(f"{self.state}/.carrel").st_mode & 0o7777)
        before = self.snapshot()
        self.registry.asked.clear()
        self.assertEqual("uv 1.2.3 is up to date\npip 25.0 is up to date\nbun 1.0.1 is up to date\n", self.bring())
        self.assertEqual(3, len(self.registry.asked), "only the pages")
        self.assertEqual(before, self.snapshot())
        answer = json.loads(self.bring("--json"))
        self.assertEqual((False, "is up to date"), (answer["changed"], answer["tools"]["uv"]["state"]))

    def test_a_newer_one_takes_its_place_and_the_old_one_stays_for_live_sandboxes(self):
        self.registry.add_all()
        self.bring()
        held = os.open(f"{self.tools}/libexec", os.O_RDONLY | os.O_DIRECTORY)
        self.registry.add_uv("1.10.0", "#!/bin/sh\necho newer\n")
        self.registry.add_uv("1.9.0")
        self.assertIn("uv 1.10.0 is new\n", self.bring())
        self.assertIn("newer", read(f"{self.tools}/libexec/uv"))
        self.assertIn("echo uv", os.read(os.open("uv", os.O_RDONLY, dir_fd=held), 100).decode())
        self.assertEqual({"tools", "tools.old", "tools.lock"}, set(os.listdir(f"{self.state}/.carrel")))
        os.close(held)

    def test_a_version_can_be_named(self):
        self.registry.add_all()
        self.registry.add_uv("2.0.0")
        self.registry.add_uv("3.0.0rc1")
        self.assertIn("uv 2.0.0 is there now", self.bring())
        self.assertIn("uv 1.2.3 is new", self.bring("--uv", "1.2.3"))
        self.assertIn("uv 3.0.0rc1 is new", self.bring("--uv=3.0.0rc1"))
        self.fails("uv stays at 3.0.0rc1: the index has no uv 9.9.9 for this host", options=("--uv", "9.9.9"))
        self.fails("bun stays at 1.0.1: the registry has no version 7.7 of it", options=("--bun", "7.7", "--uv", "3.0.0rc1"))

    def test_a_page_may_be_json(self):
        self.registry.add_all()
        data = wheel(("uv-5.0.data/scripts/uv", "#!/bin/sh\n"), ("uv-5.0.data/scripts/uvx", ""))
        name = f"uv-5.0-{Registry.TAG}.whl"
        self.registry.paths["/x/" + name] = data
        files = [{"filename": name, "url": "/x/" + name, "hashes": {"sha256": hashlib.sha256(data).hexdigest()}},
                 {"filename": f"uv-6.0-{Registry.TAG}.whl", "url": "/x/none", "hashes": {"sha256": "0" * 64}, "yanked": "bad"}]
        self.registry.paths["/simple/uv/"] = json.dumps({"meta": {}, "name": "uv", "files": files}).encode()
        self.assertIn("uv 5.0 is there now", self.bring())

    def test_yanked_ones_other_hosts_and_those_without_a_hash_are_not_taken(self):
        self.registry.add_all()
        self.registry.add_uv("9.0", extra=' data-yanked="broken"')
        self.registry.add_uv("8.0", tag="py3-none-win_amd64")
        self.registry.add_uv("7.0", tag="py3-none-manylinux_2_99_x86_64")
        self.assertIn("uv 1.2.3 is there now", self.bring())
        self.registry.paths.pop("/simple/uv/")
        self.registry.add_uv("4.0", digest="")
        self.fails("uv stays at 1.2.3", "no sha256")
        self.registry.paths.pop("/simple/uv/")
        self.registry.add_uv("4.0", tag="py3-none-win_amd64")
        self.fails("the index has no uv for this host")

    def test_a_wrong_hash_is_not_used(self):
        self.registry.add_pip()
        self.registry.add_bun(integrity="sha512-" + "A" * 86 + "==")
        self.registry.add_uv(digest="0" * 64)
        done = self.setup()
        self.assertEqual(125, done.returncode)
        self.assertIn("uv is missing: uv-1.2.3-", done.stderr)
        self.assertIn("is not what the index promises", done.stderr)
        self.assertIn("bun is missing", done.stderr)
        self.assertEqual({"pip"}, set(self.listed()), "what could be had is there")
        self.assertFalse(os.path.exists(f"{self.tools}/libexec/uv"))

    def test_what_cannot_be_had_stays_and_the_rest_is_new(self):
        self.registry.add_all()
        self.bring()
        self.registry.add_uv("2.0.0")
        for name in self.registry.bun_names:
            self.registry.paths.pop(f"/npm/{name}")
        done = self.setup()
        self.assertEqual(125, done.returncode)
        self.assertIn("uv 2.0.0 is new", done.stdout)
        self.assertIn("bun stays at 1.0.1: ", done.stderr)
        self.assertIn("is not there (status 404); check --registry", done.stderr)
        self.assertIn("echo bun", read(f"{self.tools}/bin/bun"))
        self.assertEqual({"uv", "pip", "bun"}, set(self.listed()))

    def test_404_truncated_slow_and_broken_servers_are_said_in_words(self):
        self.registry.add_all()
        self.bring()
        self.registry.paths["/simple/uv/"] = None
        self.fails("/simple/uv/ is not there (status 404); check --index")
        self.registry.paths["/simple/uv/"] = lambda h: h.send_error(500)
        self.fails("answers with status 500")
        self.registry.paths["/simple/uv/"] = lambda h: h.send_error(401)
        self.fails("does not let us in", "~/.netrc")
        self.registry.paths.pop("/simple/uv/")
        self.registry.add_uv("2.0.0", serve=lambda h: (h.reply(b"x" * 100, claim=100000), h.close_now()))
        self.fails("uv stays at 1.2.3", "broke off before the end")
        still = threading.Event()
        self.registry.paths.pop("/simple/uv/")
        self.registry.add_uv("2.0.0", serve=lambda h: (h.reply(b"x" * 100, claim=100000), h.wfile.flush(), still.wait(30)))
        self.fails("sends nothing for too long", "--timeout", options=("--timeout", "2"))
        still.set()

    def test_redirects_are_followed_and_not_for_ever(self):
        self.registry.add_all()

        def to(where):
            def serve(h):
                h.send_response(302)
                h.send_header("Location", where)
                h.send_header("Content-Length", "0")
                h.end_headers()
            return serve
        moved = self.registry.paths.pop("/simple/uv/")
        self.registry.paths["/simple/uv/"] = to("/moved/uv/")
        self.registry.paths["/moved/uv/"] = moved  # its links are relative to where it is
        self.bring()
        self.registry.paths["/simple/uv/"] = to("/simple/uv/")
        self.fails("leads from one address to the next without end")
        self.registry.paths["/simple/uv/"] = to("file:///etc/passwd")
        self.fails("no address that is used here")

    def test_no_address_no_host_nobody_there(self):
        self.registry.add_all()
        self.bring()
        self.fails("no server answers at this address; check the network", options=("--index", "http://127.0.0.1:1/simple"))
        self.fails("is not known here", options=("--index", f"http://{70 * 'a'}.invalid/simple"))
        self.fails("https://", options=("--index", "ftp://127.0.0.1/simple"))
        self.fails("https://", options=("--registry", "what is this"))

    def test_credentials_go_to_the_host_they_are_for_and_into_no_message(self):
        self.registry.add_all()
        with_key = self.registry.url.replace("http://", "http://me:s3cret@")
        self.bring("--index", f"{with_key}/simple")
        wheels = [head for path, head in self.registry.asked if path.endswith(".whl")]
        self.assertTrue(wheels and all("Authorization" in head for head in wheels))
        self.registry.paths.clear()
        done = self.fails("/simple/uv/ is not there", options=("--index", f"{with_key}/simple"))
        self.assertNotIn("s3cret", done.stderr + done.stdout)
        self.assertNotIn("s3cret", read(f"{self.tools}/tools.json"))

    def test_a_bad_certificate_authority_is_said(self):
        self.registry.add_all()
        self.fails("cannot be read", options=("--ca", self.path("none.pem")))
        key, cert = self.path("k.pem"), self.path("c.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.registry.server.socket = context.wrap_socket(self.registry.server.socket, server_side=True)
        self.registry.url = self.registry.url.replace("http:", "https:")
        self.registry.add_bun()
        self.fails("its certificate is not signed by an authority known here", "--ca")
        self.fails("the file of the certificate authority is of no use", options=("--ca", write(self.path("bad.pem"), "x")))
        self.bring("--ca", cert)

    def test_archives_that_climb_out_or_lie_put_nothing_elsewhere(self):
        self.registry.add_pip()
        self.registry.add_uv(members=[("../../../../escaped", "x"), ("/tmp/escaped-by-zip", "x"),
                                      ("uv-1.2.3.data/scripts/../../../../x", "x")])
        self.registry.add_bun(data=tarball(("../escaped", b"x"), ("package/bin/bun", b"#!/bin/sh\n"),
                                           ("/tmp/escaped-by-tar", b"x"), ("package/link", None)))
        self.bring()
        found = {name for _, _, files in os.walk(self.dir) for name in files}
        self.assertNotIn("escaped", found)
        for path in ("/tmp/escaped-by-zip", "/tmp/escaped-by-tar"):
            self.assertFalse(os.path.exists(path), path)
        for data, words in ((tarball(("package/bin/bun", None)), "is no plain file"),
                            (tarball(("package/other", b"x")), "is missing in"),
                            (tarball(("package/bin/bun", b"a"), ("package/bin/bun", b"b")), "twice"),
                            (b"no archive at all" * 100, "cannot be unpacked"),
                            (tarball(("package/bin/bun", os.urandom(100000)))[:5000], "cannot be unpacked")):
            with self.subTest(words=words):
                self.registry.add_bun("2.0.0", data=data)
                self.fails("bun stays at 1.0.1", words)

    def test_damaged_tools_are_brought_again(self):
        self.registry.add_all()
        self.bring()
        write(f"{self.tools}/libexec/uv", "damaged")
        done = self.setup("--offline")
        self.assertEqual(125, done.returncode)
        self.assertIn("uv is missing: run 'carrel env setup' without --offline", done.stderr)
        self.assertIn("uv 1.2.3 is there now", self.bring())
        self.assertIn("echo uv", read(f"{self.tools}/libexec/uv"))
        write(f"{self.tools}/tools.json", "not JSON")
        self.assertIn("bun 1.0.1 is there now", self.bring())

    def test_names_that_are_damaged_or_of_another_carrel_are_made_anew(self):
        self.registry.add_all()
        self.bring()
        script = read(f"{self.tools}/bin/uv")
        for breaks in (lambda: write(f"{self.tools}/bin/uv", "#!/bin/sh\n# of an older Carrel\n"),
                       lambda: os.chmod(f"{self.tools}/bin/uv", 0o644), lambda: os.unlink(f"{self.tools}/bin/uv"),
                       lambda: os.unlink(f"{self.tools}/bin/uvx")):
            for options in ((), ("--offline",)):
                breaks()
                self.registry.asked.clear()
                self.assertIn("uv 1.2.3 is there, and its script is new\n", self.bring(*options))
                self.assertFalse([path for path, _ in self.registry.asked if path.startswith("/files/")], "nothing is fetched")
                self.assertEqual(script, read(f"{self.tools}/bin/uv"))
                self.assertTrue(os.access(f"{self.tools}/bin/uv", os.X_OK) and os.path.exists(f"{self.tools}/bin/uvx"))
        os.unlink(f"{self.tools}/bin/bunx")
        self.assertIn("bun 1.0.1 is there, and its script is new\n", self.bring())
        self.assertEqual("bun", os.readlink(f"{self.tools}/bin/bunx"))
        os.unlink(f"{self.tools}/libexec/uvx")
        self.assertIn("uv is missing", self.setup("--offline").stderr)
        self.assertIn("uv 1.2.3 is there now\n", self.bring())
        self.assertIn("uv 1.2.3 is up to date\n", self.bring())

    def test_odd_characters_of_a_registry_do_not_reach_the_terminal(self):
        self.registry.add_all()
        self.registry.add_bun("1.0\x1b[31m")
        done = self.setup()
        self.assertEqual(125, done.returncode)
        self.assertIn("odd characters", done.stderr)
        self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_make_run_brings_them_from_where_the_daemons_settings_say(self):
        self.registry.add_all()
        env = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}

        def bring_tools(*options):
            return subprocess.run([f"{SRC}/tools/bring-tools", CARREL, "--state", self.state, *options], check=False, timeout=60,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**env, "UV_DEFAULT_INDEX": "http://127.0.0.1:1/", "npm_config_registry": "http://127.0.0.1:1/"})
        done = bring_tools("--set", "package_offline=yes")
        self.assertEqual((0, []), (done.returncode, self.registry.asked))
        self.assertIn("going on without", done.stderr)
        done = bring_tools("--set", f"package_index={self.registry.url}/simple", "--listen", "127.0.0.1:0",
                           f"--set=package_registry={self.registry.url}/npm", "--set", "allow_net_host=yes")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertTrue(os.path.exists(f"{self.tools}/bin/bun") and os.path.exists(f"{self.tools}/bin/uv"))

    def test_offline_asks_nobody(self):
        done = self.setup("--offline")
        self.assertEqual((125, []), (done.returncode, self.registry.asked))
        self.registry.add_all()
        self.bring()
        self.registry.asked.clear()
        self.assertEqual("uv 1.2.3 is there\npip 25.0 is there\nbun 1.0.1 is there\n", self.bring("--offline"))
        self.assertEqual([], self.registry.asked)
        self.assertEqual("uv 1.2.3 is there\npip 25.0 is there\nbun 1.0.1 is there\n",
                         self.bring("--config", write(self.path("c.conf"), "package_offline = yes\n")))

    def test_the_settings_of_the_daemon_say_where(self):
        self.registry.add_all()
        config = write(self.path("serve.conf"), f"state = {self.state}\npackage_index = {self.registry.url}/simple\n"
                                                f"package_registry = {self.registry.url}/npm\n")
        env = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
        done = subprocess.run([CARREL, "env", "setup", "--config", config], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, env={**env, "UV_DEFAULT_INDEX": "http://127.0.0.1:1/"}, timeout=60)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertTrue(os.path.exists(f"{self.tools}/bin/bun"))
        done = subprocess.run([CARREL, "env", "setup", "--config", write(self.path("b.conf"), "no_such = 1\n")],
                              stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        self.assertEqual(125, done.returncode)
        self.assertIn("no_such", done.stderr)

    def test_no_such_state_directory_and_bad_options(self):
        done = self.registry.setup(self.path("nowhere"))
        self.assertEqual(125, done.returncode)
        self.assertIn("there is no state directory", done.stderr)
        self.assertFalse(os.path.exists(self.path("nowhere")))
        done = self.registry.setup(write(self.path("file")))
        self.assertIn("there is no state directory", done.stderr)
        for options, word in ((["--timeout", "x"], "--timeout"), (["--nope"], "unknown option"), (["word"], "unexpected argument")):
            done = self.setup(*options)
            self.assertEqual(125, done.returncode)
            self.assertIn(word, done.stderr)

    def test_a_place_that_others_can_write_is_not_used(self):
        self.registry.add_all()
        os.mkdir(f"{self.state}/.carrel")
        os.chmod(f"{self.state}/.carrel", 0o777)
        self.fails("others can write it")
        os.rmdir(f"{self.state}/.carrel")
        os.mkdir(self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), f"{self.state}/.carrel")
        self.fails("open")
        self.assertEqual([], os.listdir(self.path("elsewhere")))

    def test_two_at_once_do_not_meet(self):
        self.registry.add_all()
        go = threading.Event()
        page = self.registry.paths["/simple/uv/"]
        self.registry.paths["/simple/uv/"] = lambda h: (go.wait(30), h.reply(page, "text/html"))
        first = threading.Thread(target=self.bring)
        first.start()
        deadline = time.monotonic() + 30
        while not self.registry.asked and time.monotonic() < deadline:
            time.sleep(0.01)
        done = self.setup()
        go.set()
        first.join()
        self.assertEqual(125, done.returncode)
        self.assertIn("another 'carrel env setup' is at work", done.stderr)
        self.assertEqual({"uv", "pip", "bun"}, set(self.listed()))

    def test_one_that_was_killed_leaves_what_there_was(self):
        self.registry.add_all()
        self.bring()
        before = self.snapshot()
        never = threading.Event()
        self.registry.add_uv("2.0.0", serve=lambda h: (h.reply(b"x" * 100, claim=10**6), h.wfile.flush(), never.wait(30)))
        process = subprocess.Popen([CARREL, "env", "setup", "--state", self.state, "--index", f"{self.registry.url}/simple",
                                    "--registry", f"{self.registry.url}/npm"])
        deadline = time.monotonic() + 30
        while not any("2.0.0" in path for path, _ in self.registry.asked) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.wait()
        never.set()
        self.assertEqual(before, self.snapshot())
        self.registry.paths.pop("/simple/uv/")
        self.registry.add_uv()
        self.bring()
        self.assertNotIn("tools.new", os.listdir(f"{self.state}/.carrel"))

    def test_a_full_disk_leaves_what_there_was(self):
        self.registry.add_all()
        self.bring()
        self.registry.add_uv("2.0.0", "#!/bin/sh\n" + "".join(chr(33 + b % 90) for b in os.urandom(400000)))
        before = self.snapshot()
        done = self.setup(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)), restore_signals=False)
        self.assertEqual(125, done.returncode)
        self.assertIn("uv stays at 1.2.3: write what", done.stderr)
        self.assertIn("make room", done.stderr)
        self.assertEqual(before, self.snapshot())


if __name__ == "__main__":
    unittest.main()
