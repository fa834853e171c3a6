#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""What people get wrong with files over HTTP: a typed answer that names it, and nothing is changed."""
import io
import json
import tarfile
import time
import unittest
import zipfile

from filestest import FilesTest, snapshot


def archive(kind, names):
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as z:
            for name in names:
                z.writestr(name, "x")
    else:
        with tarfile.open(fileobj=packed, mode="w") as t:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size = 1
                t.addfile(entry, io.BytesIO(b"x"))
    return packed.getvalue()


class Mistakes(FilesTest):
    def setUp(self):
        super().setUp()
        self.files.put("/kept", b"old")

    def refused(self, answer, *words, code="invalid_request"):
        self.fails(answer, 400, code)
        for word in words:
            self.assertIn(word, answer.json["error"]["message"])

    def test_a_parameter_that_nobody_knows_is_refused(self):
        before = snapshot(self.host)
        url = self.files.url
        for method, target, word in (("PUT", f"{url}/kept?appned=1", "appned"), ("PUT", f"{url}/kept?append=1&x", "x"),
                                     ("DELETE", f"{url}/kept?recursiv=1", "recursiv"), ("GET", f"{url}/kept?list=0&Stat=1", "Stat"),
                                     ("GET", f"{url}-watch?pth=/", "pth"), ("POST", f"{url}-unpack?dir=/", "dir"),
                                     ("GET", "/v1/workspaces?limits=1", "limits"), ("DELETE", f"/v1/workspaces/{self.space}?Purge=1", "Purge"),
                                     ("POST", f"{url}-write?x=1", "x"), ("GET", f"{url}/kept?%6cist=1", "%6cist")):
            self.refused(self.files.request(method, target, b"{}" if method in ("PUT", "POST") else None), f"'{word}'")
        self.assertEqual(before, snapshot(self.host))
        self.assertEqual(200, self.files.get("/kept", "?").status)
        self.assertEqual(200, self.files.get("/kept", "?&stat=1&").status)

    def test_two_questions_at_once_are_refused(self):
        for query in ("?list=1&stat=1", "?format=text&archive=tar", "?stat=1&format=text"):
            self.refused(self.files.get("/kept", query), "use only one of")
        self.assertEqual(200, self.files.get("/kept", "?list=0&stat=1").status)
        self.refused(self.files.get("/", "?list=1&limit=10001"))

    def test_numbers_and_modes_say_what_they_must_be(self):
        self.refused(self.files.request("DELETE", f"{self.files.url}/kept?recursive=true"), "0 or 1")
        self.refused(self.files.act("chmod", {"path": "/kept", "mode": 755}), '"0644"')
        self.refused(self.files.act("write", {"files": [{"path": "/kept", "content": "x", "mode": 755}]}), '"0644"')
        self.assertEqual(b"old", self.files.get("/kept").bytes)

    def test_a_write_without_a_content_is_none(self):
        self.refused(self.files.act("write", {"files": [{"path": "/kept", "mode": "0600"}]}), '"content"')
        self.assertEqual(b"old", self.files.get("/kept").bytes)
        self.assertEqual(200, self.files.act("write", {"files": [{"path": "/kept", "content": ""}]}).status)
        self.assertEqual(b"", self.files.get("/kept").bytes)

    def test_the_bad_path_of_many_is_named(self):
        for action, body in (("read", {"paths": ["/kept", "kept"]}),
                             ("write", {"files": [{"path": "/kept", "content": "x"}, {"path": "kept", "content": "x"}]})):
            answer = self.files.act(action, body)
            self.refused(answer, code="invalid_path")
            self.assertEqual("kept", answer.json["error"]["details"]["path"])
        self.assertEqual(b"old", self.files.get("/kept").bytes)

    def test_what_carrel_provides_is_left_out_of_an_archive_and_told(self):
        names = ["home/a", "usr/bin/foo", "etc/hostname", "usr", "tmp/fits", "z"]
        for kind in ("tar", "zip"):
            answer = self.files.request("POST", f"{self.files.url}-unpack?format={kind}", archive(kind, names))
            self.assertEqual(200, answer.status, answer.bytes)
            self.assertEqual(["usr/bin/foo", "etc/hostname", "usr"], [one["path"] for one in answer.json["skipped"]])
            self.assertEqual(3, answer.json["files"])
            for path in ("/home/a", "/tmp/fits", "/z"):
                self.assertEqual(b"x", self.files.get(path).bytes)
        self.assertEqual(200, self.files.request("POST", f"{self.files.url}-unpack?path=/sub", archive("tar", names[:3])).status)
        self.assertEqual(b"x", self.files.get("/sub/usr/bin/foo").bytes)

    def test_an_archive_is_what_its_type_says(self):
        answer = self.files.request("POST", f"{self.files.url}-unpack", archive("zip", ["in.zip"]), {"Content-Type": "application/zip"})
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertEqual(b"x", self.files.get("/in.zip").bytes)

    def test_an_edit_is_not_told_as_an_end(self):
        watch = self.daemon.stream("GET", f"{self.files.url}-watch?path=/")
        self.addCleanup(watch.keep.close)
        self.assertIn(b"ready", watch.readline())
        self.assertEqual(200, self.files.act("edit", {"path": "/kept", "old": "old", "new": "new"}).status)
        time.sleep(0.2)  # the other half of a move is waited for, a while
        self.files.put("/after", b"x")
        seen = []
        while ("create", "/after") not in seen:
            event = json.loads(watch.readline())
            seen.append((event["event"], event["path"]))
        self.assertIn(("create", "/kept"), seen)
        self.assertNotIn("delete", [event for event, _ in seen])


if __name__ == "__main__":
    unittest.main(verbosity=0)
