#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""provision/: which of an index's packages suits a host, addresses, and archives. What registries send is anybody's bytes."""
import base64
import hashlib
import http.server
import io
import json
import os
import random
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import zipfile

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{SRC}/provision")
import fetch  # noqa: E402
import indexes  # noqa: E402
import toolbox  # noqa: E402
import unpack  # noqa: E402
from indexes import Host, Package  # noqa: E402
from words import Failure, escape, read_json, size  # noqa: E402

HASH = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
DEBIAN, ALPINE = Host("x86_64", 36, True), Host("x86_64", None, True)
ARM, OLD = Host("aarch64", 36, False), Host("x86_64", 12, False)

PAGE = f"""<html><body><h1>Links</h1>
<a href="https://x/uv-1.9.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl#sha256={HASH}">a</a>
<A class='x' HREF='f/uv-1.10.0-py3-none-manylinux_2_17_x86_64.whl#sha256={HASH}'>b</A>
<a href=f/uv-1.10.0-py3-none-musllinux_1_1_x86_64.whl?a=1&amp;b=2#sha256={HASH}>c</a>
<a href="f/uv-1.10.0-py3-none-manylinux_2_28_aarch64.whl#sha256={HASH}">d</a>
<a href="f/uv-2.0.0-py3-none-win_amd64.whl#sha256={HASH}">e</a>
<a href="f/uv-1.11.0-py3-none-manylinux_2_17_x86_64.whl#sha256={HASH}" data-yanked>f</a>
<a href="f/uv-1.12.0rc1-py3-none-manylinux_2_17_x86_64.whl#sha256={HASH}">g</a>
<a href="f/uvx-9.0-py3-none-any.whl#sha256={HASH}">h</a>
<a href="f/uv-3.0.tar.gz#sha256={HASH}">i</a> <a""".encode()
ANY = "uv-1.0-py3-none-any.whl"
DOCUMENT = {"dist-tags": {"latest": "1.2.3"}, "versions": {
    "1.2.3": {"dist": {"tarball": "https://r/bun-1.2.3.tgz", "integrity": f"sha1-x sha512-{'A' * 86}=="}},
    "1.0.0": {"dist": {"tarball": "x", "shasum": "00"}}}}


def json_page(*files):
    return json.dumps({"files": files}).encode()


class Raises(unittest.TestCase):
    def fails(self, words, call, *args):
        with self.assertRaises(Failure) as failed:
            call(*args)
        self.assertIn(words, str(failed.exception))


class Wheels(Raises):
    def test_the_newest_release_for_the_host_is_chosen(self):
        for host, version, expected, url in ((DEBIAN, None, "1.10.0", "manylinux_2_17_x86_64"),
                                             (ALPINE, None, "1.10.0", "musllinux_1_1_x86_64.whl?a=1&b=2"),
                                             (ARM, None, "1.10.0", "manylinux_2_28_aarch64"),
                                             (OLD, None, "1.10.0", "musllinux"),  # static: runs there, too
                                             (DEBIAN, "1.9.0", "1.9.0", "https://x/"),
                                             (DEBIAN, "1.12.0rc1", "1.12.0rc1", "rc1")):
            with self.subTest(host=host, version=version):
                found = indexes.choose_wheel(PAGE, "uv", version, host)
                self.assertEqual((expected, HASH, "sha256"), (found.version, found.hash, found.algorithm))
                self.assertIn(url, found.url)
        for host, version in ((DEBIAN, "2.0.0"), (ARM, "1.9.0"), (DEBIAN, "1.11.0")):
            self.fails("for this host", indexes.choose_wheel, PAGE, "uv", version, host)

    def test_a_page_may_be_json(self):
        files = [{"filename": ANY, "url": "a", "hashes": {"sha256": HASH}},
                 {"filename": "uv-1.2-py3-none-any.whl", "url": "b", "hashes": {"sha256": HASH}, "yanked": ""},
                 {"filename": "uv-1.1-py3-none-any.whl", "url": "c", "hashes": {"sha256": HASH.upper()}, "yanked": False}]
        self.assertEqual(Package("uv-1.1-py3-none-any.whl", "1.1", "c", "sha256", HASH),
                         indexes.choose_wheel(json_page(*files), "uv", None, DEBIAN))

    def test_without_a_hash_there_is_no_choice(self):
        for page in (f'<a href="{ANY}">', f'<a href="{ANY}#md5=00">', f'<a href="{ANY}#sha256=00">', f'<a href="{ANY}#sha256={HASH}0">',
                     json_page({"filename": ANY, "url": "x"}).decode(), json_page({"filename": ANY, "url": "x", "hashes": []}).decode()):
            with self.subTest(page=page):
                self.fails("no sha256", indexes.choose_wheel, page.encode(), "uv", None, DEBIAN)

    def test_names_that_would_lead_elsewhere_on_disk_are_passed_over(self):
        for name in ("uv-1.0-../../x-py3-none-any.whl", "uv-2.0-py3-none-any.whl\n", "uv-1.0\x1b-py3-none-any.whl",
                     "uv-1-" + "x" * 300 + "-any.whl", "uv--1-py3-none-any.whl", "uv-1-py3-none-any.whl/..",
                     "-uv-1-py3-none-any.whl", 7, None, ["x"]):
            page = json_page({"filename": name, "url": "x", "hashes": {"sha256": HASH}})
            with self.subTest(name=name):
                self.fails("no wheel of uv", indexes.choose_wheel, page, "uv", None, DEBIAN)

    def test_malformed_pages_are_no_choice(self):
        for page in (b"", b"\0", b"{", b"[]", b"{}", b'{"files": {}}', b'{"files": [1, null, [], "x", {}]}', b"<", b"<a",
                     b"<a href", b"<a href=", b'<a href="', b"<!--", b"<!DOCTYPE", b"<![CDATA[", b"<!" + b"[" * 1000,
                     b"\xff\xfe<a href=x>", b"[" * 100000, b'{"a":' * 100000, b"<a>" * 1000, b"{" + b"9" * 100000):
            with self.subTest(page=page[:40]):
                self.fails("", indexes.choose_wheel, page, "uv", None, DEBIAN)

    def test_pages_that_are_made_to_take_long_do_not(self):
        for piece in (b"<!--", b"<a ", b"<![", b"<!a", b"<a href='", b"&", b"</a ", b"<?", b"<a b=c "):
            with self.subTest(piece=piece):
                began = time.monotonic()
                self.fails("", indexes.choose_wheel, piece * (200000 // len(piece)), "uv", None, DEBIAN)
                self.assertLess(time.monotonic() - began, 20)

    def test_whatever_a_page_becomes_what_is_chosen_is_sound(self):
        chance = random.Random(20)
        pages = [PAGE, json_page({"filename": ANY, "url": "x", "hashes": {"sha256": HASH}}), json.dumps(DOCUMENT).encode()]
        parts = [b"<a href=", b"'", b'"', b">", b"#sha256=", HASH.encode(), b"uv-", b".whl", b"/", b"..", b"\0", b"\x1b", b"\xff",
                 b"{", b"}", b"-any", b"9" * 30]
        for _ in range(3000):
            page = bytearray(chance.choice(pages))
            for _ in range(chance.randrange(1, 8)):
                at = chance.randrange(len(page) + 1)
                page[at:at + chance.choice((0, 1, 5))] = chance.choice(parts)
            for host in (DEBIAN, Host("aarch64", None, True)):
                try:
                    found = indexes.choose_wheel(bytes(page), "uv", None, host)
                except Failure:
                    continue
                self.assertRegex(found.hash, r"\A[0-9a-f]{64}\Z")
                self.assertRegex(found.file, r"\A[Uu][Vv]-[A-Za-z0-9._+!-]+\.whl\Z")
                self.assertRegex(found.version, r"\A[0-9]+(\.[0-9]+)*\Z")
            try:
                found = indexes.choose_release(bytes(page), None)
                self.assertRegex(found.hash, r"\A[0-9a-f]{128}\Z")
                self.assertRegex(found.file + found.version, r"\A[A-Za-z0-9._+!-]+\Z")
            except Failure:
                pass


class Bun(Raises):
    def test_npm_documents_give_what_they_call_the_latest(self):
        page = json.dumps(DOCUMENT).encode()
        self.assertEqual(Package("bun-1.2.3.tgz", "1.2.3", "https://r/bun-1.2.3.tgz", "sha512", "0" * 128),
                         indexes.choose_release(page, None))
        self.fails("no sha512", indexes.choose_release, page, "1.0.0")
        self.fails("no version 7 of it", indexes.choose_release, page, "7")
        for bad in (b"", b"[]", b"{", b"nonsense", b"{}", b'{"dist-tags": []}', b'{"dist-tags": {"latest": 7}}',
                    b'{"dist-tags": {"latest": "1"}, "versions": []}'):
            with self.subTest(bad=bad):
                self.fails("", indexes.choose_release, bad, None)

    def test_a_hash_of_another_length_or_with_other_letters_is_none(self):
        for text in (None, 7, "", "sha512-", "sha512-" + "A" * 85 + "==", "sha512-" + "A" * 87 + "==", "sha512-" + "!" * 86 + "==",
                     "sha256-" + "A" * 86 + "=="):
            self.assertIsNone(indexes.read_integrity(text), text)
        digest = hashlib.sha512(b"x")
        self.assertEqual(digest.hexdigest(), indexes.read_integrity("sha1-a sha512-" + base64.b64encode(digest.digest()).decode() + "?x"))

    def test_odd_names_are_refused(self):
        for version, url in (("1\x1b[31m", "https://r/x.tgz"), ("1", "https://r/x\n.tgz"), ("1", "https://r/"), ("..", "https://r/a b")):
            page = json.dumps({"versions": {version: {"dist": {"tarball": url, "integrity": f"sha512-{'A' * 86}=="}}}}).encode()
            self.fails("odd characters", indexes.choose_release, page, version)

    def test_bun_is_chosen_by_processor_and_c_library(self):
        for host, name in ((DEBIAN, "bun-linux-x64"), (OLD, "bun-linux-x64-baseline"), (ALPINE, "bun-linux-x64-musl"),
                           (Host("x86_64", None, False), "bun-linux-x64-musl-baseline"), (ARM, "bun-linux-aarch64"),
                           (Host("aarch64", None, False), "bun-linux-aarch64-musl")):
            self.assertEqual(f"@oven/{name}", indexes.bun_package(host))
        self.assertIsNone(indexes.bun_package(Host("riscv64", 36, False)))

    def test_files_come_from_the_registry_that_was_asked(self):
        package = Package("f", "1", "https://other.invalid/@oven/bun/-/f", "sha512", "")
        self.assertEqual("https://mine.invalid/npm/@oven/bun/-/f", indexes.of_registry(package, "https://mine.invalid/npm").url)
        plain = Package("f", "1", "https://other.invalid/f", "sha512", "")
        self.assertEqual(plain, indexes.of_registry(plain, "https://mine.invalid/npm"))


class Addresses(unittest.TestCase):
    def test_credentials_are_not_shown(self):
        for url, shown in (("https://me:s3cret@h:1/a?token=x#y", "https://h:1/a"), ("https://h/a@b", "https://h/a@b"),
                           ("http://a@b@h/", "http://h/"), ("me:s3cret@h/x", "h/x"), ("", "")):
            self.assertEqual(shown, fetch.shown(url))

    def test_they_go_to_packages_of_the_same_host_only(self):
        page = "https://me:s3cret@h/simple/uv/"
        for url, joined in (("../../f/a", "https://me:s3cret@h/f/a"), ("https://h:443/b", "https://me:s3cret@h:443/b"),
                            ("https://h:444/b", "https://h:444/b"), ("http://h/b", "http://h/b"), ("https://other/b", "https://other/b"),
                            ("//other/b", "https://other/b"), ("https://you@h/b", "https://you@h/b")):
            self.assertEqual(joined, fetch.join(page, url))


class Redirects(Raises):
    def setUp(self):
        home = self.enterContext(tempfile.TemporaryDirectory())
        before = os.environ.get("HOME")
        os.environ["HOME"] = home
        self.addCleanup(lambda: os.environ.update(HOME=before) if before else os.environ.pop("HOME"))
        self.netrc = f"{home}/.netrc"
        self.fetch = fetch.Fetch(None, 5, False)
        self.fetch.option = "--index"

    def sent(self, url, first):
        return self.fetch.request(url, {}, first).unredirected_hdrs.get("Authorization")

    def test_credentials_are_sent_to_whom_they_are_for(self):
        mine = "Basic " + base64.b64encode(b"me:s3cret").decode()
        for url, first, sent in (("http://h/b", "http://me:s3cret@h/a", mine), ("http://other/b", "http://me:s3cret@h/a", None),
                                 ("http://h:81/b", "http://me:s3cret@h/a", None), ("http://h/", "http://h/", None),
                                 ("http://me:s3cret@other/", "http://h/", mine)):
            self.assertEqual(sent, self.sent(url, first), url)
        with open(self.netrc, "w", encoding="ascii") as file:
            file.write("machine h login me password s3cret\n")
        self.assertEqual((mine, None), (self.sent("http://h/", "http://x/"), self.sent("http://x/", "http://x/")))
        with open(self.netrc, "w", encoding="ascii") as file:
            file.write("machine\n")
        self.assertIsNone(self.sent("http://h/", "http://h/"))

    def test_what_was_asked_for_safely_is_not_fetched_otherwise(self):
        self.fails("no address that is used here", self.fetch.request, "http://h/", {}, "https://h/")
        for url in ("file:///etc/passwd", "ftp://h/", "//h/", "", "http://", "https:///x", "data:,x", "http://[::1"):
            self.fails("https://", self.fetch.request, url, {}, url)


class Downloads(Raises):
    """What comes is not what was promised, over HTTP."""

    def setUp(self):
        test = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):
                self.send_response(200)
                for name, value in test.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(test.body)
        self.headers, self.body = {}, b"some bytes"
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,)).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/f"
        self.fetch = fetch.Fetch(None, 5, False)
        self.fetch.option = "--index"

    def package(self, algorithm="sha256", digest=None):
        return Package("f.whl", "1", "f", algorithm, digest or hashlib.new(algorithm, self.body).hexdigest())

    def test_only_what_has_the_hash_is_good(self):
        for algorithm in ("sha256", "sha512"):
            into = io.BytesIO()
            self.fetch.package(self.url, self.package(algorithm), into)
            self.assertEqual(self.body, into.getvalue())
            self.fails("is not what the index promises", self.fetch.package, self.url, self.package(algorithm, "0" * 64), io.BytesIO())

    def test_a_package_is_taken_as_it_is_also_where_it_is_called_packed(self):
        self.headers, into = {"Content-Encoding": "gzip"}, io.BytesIO()
        self.fetch.package(self.url, self.package(), into)
        self.assertEqual(self.body, into.getvalue())

    def test_a_page_that_unpacks_to_more_than_a_page_has_is_given_up(self):
        import zlib
        packer = zlib.compressobj(9, wbits=31)
        self.headers = {"Content-Encoding": "gzip"}
        self.body = b"".join(packer.compress(bytes(1 << 20)) for _ in range(80)) + packer.flush()
        self.fails("sends more than a package has", self.fetch.page, self.url, "*/*")
        self.body = self.body[:100]
        self.fails("broke off", self.fetch.page, self.url, "*/*")
        self.body = b"no gzip at all"
        self.fails("try again", self.fetch.page, self.url, "*/*")


class Archives(Raises):
    WANTED = {"package/bin/bun": "bun"}

    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory())
        os.mkdir(f"{self.dir}/in")
        self.at = os.open(f"{self.dir}/in", os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, self.at)

    def tree(self):
        return {os.path.join(where, name) for where, dirs, files in os.walk(self.dir) for name in files + dirs} - {f"{self.dir}/in"}

    def unpack(self, data, name="a.tgz", wanted=None):
        return unpack.members(io.BytesIO(data), name, wanted or self.WANTED, self.at)

    @staticmethod
    def tar(*members):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, kind, content in members:
                info = tarfile.TarInfo(name)
                info.type, info.size, info.linkname = kind, len(content) if kind == tarfile.REGTYPE else 0, "/etc/passwd"
                archive.addfile(info, io.BytesIO(content))
        return out.getvalue()

    @staticmethod
    def zip(*members):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, mode, content in members:
                info = zipfile.ZipInfo(name)
                info.external_attr = mode << 16
                archive.writestr(info, content)
        return out.getvalue()

    def test_what_climbs_out_goes_nowhere(self):
        hostile = [("../bun", tarfile.REGTYPE, b"x"), ("/bun", tarfile.REGTYPE, b"x"), ("package/bin/../../../bun", tarfile.REGTYPE, b"x"),
                   ("bun", tarfile.SYMTYPE, b""), ("./package/bin/bun", tarfile.REGTYPE, b"x"), ("package", tarfile.SYMTYPE, b""),
                   ("package/bin/bun", tarfile.REGTYPE, b"right")]
        self.unpack(self.tar(*hostile))
        self.assertEqual({f"{self.dir}/in/bun"}, self.tree())
        with open(f"{self.dir}/in/bun", "rb") as file:
            self.assertEqual((b"right", 0o755), (file.read(), os.fstat(file.fileno()).st_mode & 0o7777))

    def test_members_of_a_zip_likewise(self):
        self.unpack(self.zip(("../x", 0, b"x"), ("/x", 0, b"x"), ("a/../../x", 0o100644, b"x"), ("package/bin/bun", 0o100644, b"right")), "a.whl")
        self.assertEqual({f"{self.dir}/in/bun"}, self.tree())

    def test_what_is_no_plain_file_is_refused(self):
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            self.fails("is no plain file", self.unpack, self.tar(("package/bin/bun", kind, b"")))
        self.fails("is no plain file", self.unpack, self.zip(("package/bin/bun", 0o120777, b"/etc/passwd")), "a.whl")
        self.fails("is no plain file", self.unpack, self.zip(("package/bin/bun", 0o040755, b"")), "a.whl")
        self.assertEqual(set(), self.tree())

    def test_nothing_is_written_over_and_links_that_are_there_are_not_followed(self):
        self.fails("twice", self.unpack, self.tar(*[("package/bin/bun", tarfile.REGTYPE, b"x")] * 2))
        os.unlink(f"{self.dir}/in/bun")
        os.symlink(f"{self.dir}/elsewhere", f"{self.dir}/in/bun")
        self.fails("make 'bun'", self.unpack, self.tar(("package/bin/bun", tarfile.REGTYPE, b"x")))
        self.assertFalse(os.path.exists(f"{self.dir}/elsewhere"))

    def test_damaged_ones_are_said_in_words(self):
        whole = {"a.tgz": self.tar(("other", tarfile.REGTYPE, os.urandom(3000)), ("package/bin/bun", tarfile.REGTYPE, os.urandom(9000))),
                 "a.whl": self.zip(("other", 0, os.urandom(3000)), ("package/bin/bun", 0, os.urandom(9000)))}
        chance = random.Random(7)
        for name, data in whole.items():
            self.fails("cannot be unpacked", self.unpack, b"no archive at all" * 100, name)
            self.fails("cannot be unpacked", self.unpack, b"", name)
            for _ in range(150):
                broken = bytearray(data[:chance.randrange(1, len(data))] if chance.random() < 0.5 else data)
                for _ in range(chance.randrange(0, 10)):
                    broken[chance.randrange(len(broken))] = chance.randrange(256)
                try:
                    self.unpack(bytes(broken), name)
                except Failure:
                    pass  # and nothing else
                self.assertLessEqual(self.tree(), {f"{self.dir}/in/bun"})
                if self.tree():
                    os.unlink(f"{self.dir}/in/bun")
        self.fails("is missing", self.unpack, self.tar(("other", tarfile.REGTYPE, b"x")))


class Tools(unittest.TestCase):
    def test_a_record_that_names_another_place_is_of_no_use(self):
        for archive in (None, 7, "", "../x", "/x", "a/b", "x" * 256):
            self.assertIsNone(toolbox.checked_file("pip", {"archive": archive}))
        self.assertEqual("wheels/pip-1.whl", toolbox.checked_file("pip", {"archive": "pip-1.whl"}))
        self.assertEqual("libexec/uv", toolbox.checked_file("uv", {"archive": "../x"}))

    def test_a_list_of_tools_that_holds_anything_names_none(self):
        with tempfile.TemporaryDirectory() as state:
            os.makedirs(f"{state}/.carrel/tools/libexec")
            os.chmod(f"{state}/.carrel", 0o700)
            for text in (b"", b"[]", b"7", b"{", b"[" * 100000, b'{"uv": 7}', b'{"uv": {}}', b"\xff",
                         b'{"uv": {"version": 1, "sha256": 2}}', b'{"pip": {"version": "1", "archive": "../tools.json", "sha256": "x"}}'):
                with open(f"{state}/.carrel/tools/tools.json", "wb") as file:
                    file.write(text)
                box = toolbox.Toolbox(state, False)
                self.assertEqual([None] * 3, [box.find(tool) for tool in toolbox.TOOLS], text)
                box.close()


class Words(unittest.TestCase):
    def test_sizes(self):
        self.assertEqual(["0", "1023", "1.0K", "1.5K", "10K", "1.0M", "20G"], [size(n) for n in (0, 1023, 1024, 1536, 10240, 1 << 20, 20 << 30)])

    def test_nothing_drives_a_terminal(self):
        self.assertEqual("\\x1b[2Ja\\u{202e}\\x0a\\xff\u00e9\\u{80}",
                         escape(b"\x1b[2Ja\xe2\x80\xae\n\xff\xc3\xa9\xc2\x80".decode(errors="surrogateescape")))

    def test_json_that_two_readers_could_read_differently_is_refused(self):
        for text in (b'{"a": 1, "a": 2}', b"NaN", b"[Infinity]", b'"\\ud800"', b'{"\\u0000": 1}', b"\xff", b"", b"{", b"[" * 100000, b"9" * 5000):
            with self.assertRaises(ValueError, msg=text[:40]):
                read_json(text)
        self.assertEqual({"a": ["\U0001f600", None]}, read_json('{"a": ["\\ud83d\\ude00", null]}'.encode()))


if __name__ == "__main__":
    unittest.main()
