#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""Rules that look at requests: TLS ends in carrel-egress, with an authority of the sandbox's own that programs inside
trust without settings; methods and paths are kept, secrets are put into requests, and taken out of answers."""
import gzip
import json
import os
import shutil
import unittest

from carreltest import PYTHON, CarrelTest, write
from nettest import Names
from tlstest import Authority, TlsWeb

API, OTHER = "api.example.org", "www.example.org"
VALUE = "sk-live-0123456789abcdefXYZ"
FETCH = ("import http.client, json, os, sys, urllib.request\n"
         "for line in sys.argv[1:]:\n"
         "    method, url, *headers = line.split(' ', 2)\n"
         "    fields = dict(pair.split('=', 1) for pair in (headers[0].split(';') if headers else []))\n"
         "    fields = {name: os.path.expandvars(value) for name, value in fields.items()}\n"
         "    request = urllib.request.Request(url, headers=fields, method=method)\n"
         "    try:\n"
         "        with urllib.request.urlopen(request, timeout=20) as answer: print(json.dumps([answer.status, dict(answer.headers), answer.read().decode('latin-1')]))\n"
         "    except urllib.error.HTTPError as error: print(json.dumps([error.code, dict(error.headers), error.read().decode('latin-1')]))\n"
         "    except (OSError, http.client.HTTPException) as error: print(json.dumps([0, {}, str(error)]))\n")


JAVA = """
import java.net.URI;
import java.net.http.*;
class Get {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0])).header("Authorization", "Bearer " + System.getenv("EXAMPLE_KEY")).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.body());
    }
}
"""


class InspectedTest(CarrelTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.path("authority"))
        self.web = TlsWeb(self.authority.context(API))
        self.names = Names({API: ["127.0.0.1"], OTHER: ["127.0.0.1"]})
        write(self.path("key"), VALUE + "\n")
        os.chmod(self.path("key"), 0o600)
        self.options = ["--nameserver", self.names.address, "--allow-private", API, "--allow-private", OTHER, "--trust", self.authority.file]

    def tearDown(self):
        self.web.close()
        self.names.close()
        super().tearDown()

    def rule(self, words, host=API):
        return ["--allow", f"{host}:{self.web.port} {words}"]

    def secret(self, words=""):
        return [*self.rule(f"secret=example-key {words}"), "--secret", f"example-key={self.path('key')}"]

    def url(self, path="/", host=API):
        return f"https://{host}:{self.web.port}{path}"

    def ask(self, options, *lines):
        """(status, headers, body) of each request that a program inside makes, and the denials."""
        result, _ = self.json(*self.options, *options, "--", PYTHON, "-c", FETCH, *lines)
        self.assertEqual(0, result["exit_code"], result["stderr"])
        return [json.loads(line) for line in result["stdout"].splitlines()], result["denials"]


class Requests(InspectedTest):
    def test_methods_and_paths(self):
        answers, denials = self.ask(self.rule("methods=GET,HEAD paths=/v1/models,/v1/chat/*"),
                                    *(f"{method} {self.url(path)}" for method, path in (
                                        ("GET", "/v1/models"), ("GET", "/v1/models?limit=3"), ("HEAD", "/v1/chat/x"), ("GET", "/v1/chat/"),
                                        ("POST", "/v1/models"), ("GET", "/v1/models/1"), ("GET", "/v1/chat/../admin"), ("GET", "/v1/chat/%2e%2e/admin"),
                                        ("GET", "/v1/chat//admin"), ("GET", "/v1/chat/a%2fb"), ("GET", "/v1/chat/..;/admin"), ("TRACE", "/v1/models"))))
        self.assertEqual([200] * 4 + [403] * 8, [answer[0] for answer in answers], answers)
        self.assertEqual(["/v1/models", "/v1/models?limit=3", "/v1/chat/x", "/v1/chat/"], [path for _, path, _, _ in self.web.seen])
        self.assertIn("method", answers[4][2])
        self.assertIn("two ways", answers[6][2])
        self.assertTrue(denials)

    def test_a_rule_may_only_look(self):
        answers, _ = self.ask(self.rule("tls=inspect"), f"DELETE {self.url('/anything/../x')}")
        self.assertEqual(200, answers[0][0])
        self.assertEqual("DELETE", self.web.seen[0][0])

    def test_several_rules_for_a_host_are_alternatives(self):
        options = [*self.rule("methods=GET paths=/a/*"), *self.rule("methods=POST paths=/b")]
        answers, _ = self.ask(options, *(f"{method} {self.url(path)}" for method, path in (("GET", "/a/1"), ("POST", "/b"), ("POST", "/a/1"), ("GET", "/b"))))
        self.assertEqual([200, 200, 403, 403], [answer[0] for answer in answers])

    def test_the_real_server_is_verified(self):
        self.options = self.options[:-2]
        answers, denials = self.ask(self.rule("methods=GET"), f"GET {self.url()}")
        self.assertEqual(502, answers[0][0], answers)
        self.assertIn("certificate", answers[0][2])
        self.assertIn("certificate", json.dumps(denials))
        self.assertEqual([], self.web.seen)

    def test_a_server_of_another_name_is_refused(self):
        answers, _ = self.ask(self.rule("methods=GET", OTHER), f"GET {self.url(host=OTHER)}")
        self.assertEqual(502, answers[0][0], answers)
        self.assertIn("another name", answers[0][2])
        self.assertEqual([], self.web.seen)

    def test_plain_http_is_refused(self):
        answers, denials = self.ask(self.secret(), f"GET http://{API}:{self.web.port}/ Authorization=$EXAMPLE_KEY")
        self.assertEqual(0, answers[0][0], answers)
        self.assertIn("not TLS", json.dumps(denials))

    def test_headers_that_make_another_request_are_refused(self):
        answers, _ = self.ask(self.rule("methods=GET"), f"GET {self.url()} X-HTTP-Method-Override=DELETE", f"GET {self.url()} X-Original-Url=/admin")
        self.assertEqual([403, 403], [answer[0] for answer in answers])
        self.assertEqual([], self.web.seen)

    def test_answers_of_each_kind_arrive_whole(self):
        big = os.urandom(300000).hex().encode()
        chunks = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] + [b"%x\r\n%s\r\n" % (len(big[at:at + 777]), big[at:at + 777])
                                                                                 for at in range(0, len(big), 777)] + [b"0\r\nX-Trailer: y\r\n\r\n"]
        self.web.answers = {"/chunks": chunks, "/end": b"HTTP/1.0 200 OK\r\n\r\n" + big, "/none": b"HTTP/1.1 204 No Content\r\n\r\n",
                            "/early": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                            "/long": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(big), big)}
        for options in (self.rule("tls=inspect"), self.secret()):
            answers, _ = self.ask(options, *(f"GET {self.url(path)}" for path in self.web.answers))
            self.assertEqual([200, 200, 204, 200, 200], [answer[0] for answer in answers])
            self.assertEqual([big.decode(), big.decode(), "", "ok", big.decode()], [answer[2] for answer in answers])

    def test_a_malformed_answer_is_refused(self):
        self.web.answers = {"/two": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", "/junk": b"hello\r\n\r\n",
                            "/both": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                            "/feed": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n\r\n\r\nab", "/101": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
                            "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc"}
        answers, _ = self.ask(self.rule("tls=inspect"), *(f"GET {self.url(path)}" for path in self.web.answers))
        self.assertEqual([502] * 5, [answer[0] for answer in answers[:5]], answers)
        self.assertNotEqual("abc", answers[5][2] if answers[5][0] == 200 else "")


class Secrets(InspectedTest):
    def test_it_goes_into_its_header_and_comes_back_nowhere(self):
        answers, _ = self.ask(self.secret("paths=/v1/*"), f"GET {self.url('/v1/x')} Authorization=Bearer $EXAMPLE_KEY;X-Other=$EXAMPLE_KEY")
        self.assertEqual(200, answers[0][0], answers)
        sent = self.web.seen[0][2]
        self.assertEqual(f"Bearer {VALUE}", sent["authorization"])
        self.assertEqual("carrel-secret-example-key", sent["x-other"])
        self.assertEqual("identity", sent["accept-encoding"])
        self.assertNotIn(VALUE, json.dumps(answers))
        self.assertEqual("*" * len(VALUE), answers[0][1]["X-Again"].split()[1])

    def test_as_a_password(self):
        script = f'curl -sS -u "me:$EXAMPLE_KEY" {self.url("/a")}'
        shown = self.ok(*self.options, *self.secret(), "--", "sh", "-c", script)
        import base64
        token = base64.b64encode(f"me:{VALUE}".encode()).decode()
        self.assertEqual(f"Basic {token}", self.web.seen[0][2]["authorization"])
        self.assertNotIn(token, shown)

    def test_another_header_and_variable(self):
        answers, _ = self.ask(self.secret("header=X-Api-Key env=THE_KEY"), f"GET {self.url()} x-api-key=$THE_KEY;Authorization=$THE_KEY")
        self.assertEqual(200, answers[0][0], answers)
        self.assertEqual((VALUE, "carrel-secret-example-key"), (self.web.seen[0][2]["x-api-key"], self.web.seen[0][2]["authorization"]))

    def test_a_key_of_the_programs_own_is_refused(self):
        answers, _ = self.ask(self.secret(), f"GET {self.url()} Authorization=Bearer mine-0123456789", f"GET {self.url()}")
        self.assertEqual([403, 200], [answer[0] for answer in answers], answers)

    def test_it_is_found_in_pieces(self):
        value = VALUE.encode()
        cut = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] + [b"1\r\n%c\r\n" % byte for byte in b"<" + value + b">" + value[:5] + value] + [b"0\r\n\r\n"]
        self.web.answers = {"/cut": cut, "/end": b"HTTP/1.0 200 OK\r\nX-It: " + value + b"\r\n\r\n" + value[:-1] + value + value[:12],
                            "/twice": b"HTTP/1.1 200 " + value + b"\r\nContent-Length: %d\r\n\r\n%s" % (2 * len(value), value * 2)}
        answers, _ = self.ask(self.secret(), *(f"GET {self.url(path)} Authorization=$EXAMPLE_KEY" for path in self.web.answers))
        stars = "*" * len(VALUE)
        self.assertEqual([f"<{stars}>{VALUE[:5]}{stars}", f"{VALUE[:-1]}{stars}{'*' * 12}", stars * 2], [answer[2] for answer in answers])
        self.assertEqual(stars, answers[1][1]["X-It"])

    def test_what_cannot_be_searched_is_refused(self):
        body = gzip.compress(VALUE.encode())
        self.web.answers = {"/gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)}
        answers, _ = self.ask(self.secret(), f"GET {self.url('/gzip')} Authorization=$EXAMPLE_KEY")
        self.assertEqual(502, answers[0][0], answers)

    def test_no_piece_of_an_answer_can_be_asked_for(self):
        self.ask(self.secret(), f"GET {self.url()} Authorization=$EXAMPLE_KEY;Range=bytes=0-3")
        self.assertNotIn("range", self.web.seen[0][2])

    def test_secrets_that_are_not_there(self):
        for text in ("short", "a" * 5000, "two\nlines of it", "", "a tab\there it is"):
            write(self.path("bad"), text)
            done = self.refused(*self.options, *self.rule("secret=example-key"), "--secret", f"example-key={self.path('bad')}", "--", "true")
            self.assertIn("can be no secret", done)
        self.assertIn("--secret other=FILE", self.refused(*self.options, *self.rule("secret=other"), "--", "true"))
        self.assertIn("secret", self.refused(*self.options, "--allow", "*.example.org secret=x", "--secret", f"x={self.path('key')}", "--", "true"))

    def refused(self, *args):
        from carreltest import carrel
        done = carrel("run", *args, cwd=self.dir)
        self.assertEqual(125, done.returncode, done)
        return done.stderr if isinstance(done.stderr, str) else done.stderr.decode()


class Clients(InspectedTest):
    """Programs as they are."""

    def run_script(self, script):
        return self.ok(*self.options, *self.secret("paths=/v1/*"), "--", "sh", "-c", script)

    def test_curl_and_python(self):
        self.assertIn("/v1/curl", self.run_script(f'curl -sSf -H "Authorization: Bearer $EXAMPLE_KEY" {self.url("/v1/curl")}'))
        self.assertIn("/v1/bare", self.run_script(f'env -i /usr/bin/curl -sSf {self.url("/v1/bare")}'))
        self.assertEqual(f"Bearer {VALUE}", self.web.seen[0][2]["authorization"])

    @unittest.skipUnless(shutil.which("javac"), "no Java is installed")
    def test_java(self):
        """It has a list of its own, in a file of its own kind; the certificates that were there are trusted still."""
        write(self.path("Get.java"), JAVA)
        store = "/etc/ssl/certs/java/cacerts"
        shown = self.ok(*self.options, *self.secret("paths=/v1/*"), "--ro", f"{self.path('Get.java')}:/tmp/Get.java", "--", "sh", "-c",
                        f"java /tmp/Get.java {self.url('/v1/java')}; od -An -tx1 -j8 -N4 {store}")
        self.assertIn("200 ", shown)
        self.assertIn("/v1/java", shown)
        self.assertEqual(f"Bearer {VALUE}", self.web.seen[0][2]["authorization"])
        self.assertNotIn(VALUE, shown)
        with open(store, "rb") as file:  # how many it has
            self.assertEqual(int.from_bytes(file.read(12)[8:], "big") + 1, int(shown.splitlines()[-1].replace(" ", ""), 16))

    def test_a_websocket_is_refused_in_words(self):
        answers, denials = self.ask(self.secret(), f"GET {self.url('/v1/ws')} Connection=Upgrade;Upgrade=websocket;Sec-WebSocket-Version=13;"
                                    "Sec-WebSocket-Key=dGhlIHNhbXBsZSBub25jZQ==;Authorization=$EXAMPLE_KEY")
        self.assertEqual(403, answers[0][0], answers)
        self.assertIn("WebSocket", answers[0][2])
        self.assertIn("WebSocket", json.dumps(denials))
        self.assertEqual([], self.web.seen)

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_node(self):
        script = "fetch(process.argv[1], {headers: {authorization: 'Bearer ' + process.env.EXAMPLE_KEY}}).then(r => r.text()).then(console.log)"
        shown = self.run_script(f'node -e "{script}" {self.url("/v1/node")}')
        self.assertIn("/v1/node", shown)
        self.assertEqual(f"Bearer {VALUE}", self.web.seen[0][2]["authorization"])
        self.assertNotIn(VALUE, shown)


if __name__ == "__main__":
    unittest.main()
