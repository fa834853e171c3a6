#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Files of a form (multipart/form-data), as curl sends them, and as nobody should."""
import os
import subprocess
import unittest

from filestest import FilesTest, snapshot

HEAD = {"Content-Type": "multipart/form-data; boundary=b"}


def one(name, content=b"x", more=b""):
    return b'--b\r\nContent-Disposition: form-data; name="f"; filename="' + name + b'"\r\n' + more + b"\r\n" + content + b"\r\n"


class Forms(FilesTest):
    def send(self, body, query="", headers=None):
        return self.files.request("POST", f"{self.files.url}-upload{query}", body, HEAD if headers is None else headers)

    def curl(self, query, *words):
        done = subprocess.run(["curl", "-sS", "--unix-socket", self.daemon.socket, f"http://carrel{self.files.url}-upload{query}", *words],
                              capture_output=True, check=True, timeout=60)
        return done.stdout

    def test_curl_sends_files_and_they_are_there(self):
        contents = {"plain.txt": b"hello\n", "with blank": os.urandom(300000), "empty": b"", "looks-like-it": b"\r\n--b--\r\n" * 1000, "\u00fcml\u00e4ut": b"u"}
        words = []
        for name, content in contents.items():
            with open(self.path(name), "wb") as f:
                f.write(content)
            words += ["-F", f"file=@{self.path(name)}"]
        words += ["-F", f"file=@{self.path('plain.txt')};filename=deep/er/other.txt"]
        answer = self.curl("?path=/in/here", *words)
        self.assertEqual(6, answer.count(b'"ok":true'), answer)
        for name, content in {**contents, "deep/er/other.txt": b"hello\n"}.items():
            self.assertEqual(content, self.files.get(f"/in/here/{name}").bytes, name)
        self.assertEqual("hello\n", self.daemon.execute(self.space, "cat /in/here/plain.txt")["stdout"])
        with_root = self.curl("", "-F", f"file=@{self.path('plain.txt')}")
        self.assertIn(b'"/plain.txt"', with_root)
        records = self.daemon.get("/v1/audit?operation=file.write_many").json["records"]
        self.assertIn("/in/here/deep/er/other.txt", records[0]["details"]["paths"])

    def test_each_has_a_result_of_its_own(self):
        self.files.put("/there/f", b"old")
        answer = self.send(one(b"there", b"y") + one(b"there/f", b"new") + b"--b--")
        results = answer.json["results"]
        self.assertEqual(["is_directory", None], [r.get("error", {}).get("code") for r in results])
        self.assertEqual(b"new", self.files.get("/there/f").bytes)

    def test_what_cannot_be_read_changes_nothing(self):
        self.files.put("/kept", b"old")
        before = snapshot(self.host)
        good = one(b"kept", b"new")
        for body, code in ((good, "invalid_request"), (good + b"--b", "invalid_request"), (good + b"--b--behind", "invalid_request"),
                           (good + one(b"../../etc/x") + b"--b--", "invalid_path"), (good + one(b"/abs//x") + b"--b--", "invalid_path"),
                           (good + one(b"") + b"--b--", "invalid_path"), (good + one(b"a" * 5000) + b"--b--", "invalid_path"),
                           (good + b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n--b--', "invalid_request"),
                           (good + one(b"e", b"eA==", b"Content-Transfer-Encoding: base64\r\n") + b"--b--", "invalid_request"),
                           (good + one(b"a\\\\b") + b"--b--", "invalid_request"), (good + one(b'x"; filename*="utf-8\'\'y') + b"--b--", "invalid_request"),
                           (b"", "invalid_request"), (b"{}", "invalid_request")):
            answer = self.send(body)
            self.assertEqual((400, code), (answer.status, answer.code), body[-80:])
        self.assertEqual(400, self.send(good + b"--b--", headers={"Content-Type": "application/json"}).status)
        self.assertEqual(400, self.send(good + b"--b--", headers={}).status)
        self.assertEqual(400, self.send(good + b"--b--", query="?path=up/..").status)
        self.assertEqual(413, self.send(one(b"kept", b"x" * (65 << 20)) + b"--b--").status)
        self.assertEqual(413, self.send(good * 10001 + b"--b--").status)
        many = {"files": [{"path": "/kept", "content": "new"}] * 100001}
        self.assertEqual(413, self.files.request("POST", f"{self.files.url}-write", many).status)
        self.assertEqual(before, snapshot(self.host))

    def test_thousands_of_small_ones_in_one_form(self):
        body = b"".join(one(b"many/%d" % i, b"%d" % i) for i in range(5000)) + b"--b--\r\n"
        answer = self.send(body)
        self.assertEqual(5000, sum(1 for r in answer.json["results"] if r.get("ok")))
        self.assertEqual(b"4999", self.files.get("/many/4999").bytes)


if __name__ == "__main__":
    unittest.main(verbosity=0)
