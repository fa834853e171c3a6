# SPDX-License-Identifier: Apache-2.0
"""What the tests of the files API share: calls with names of any bytes, and looking at a workspace from the host."""
import base64
import errno
import http.client
import json
import os
import stat
import time
import urllib.parse

from carreltest import PATIENCE
from daemontest import Answer, DaemonTest

LONG = bool(os.environ.get("LONG"))
# The table of errors as it is documented, written down a second time.
CODES = {
    errno.ENOENT: (404, "file_not_found"), errno.EACCES: (403, "permission_denied"), errno.EPERM: (403, "permission_denied"),
    errno.EISDIR: (409, "is_directory"), errno.ENOTDIR: (409, "not_a_directory"), errno.ENAMETOOLONG: (400, "invalid_path"),
    errno.EINVAL: (400, "invalid_path"), errno.ELOOP: (400, "invalid_path"), errno.EEXIST: (409, "already_exists"),
    errno.ENOTEMPTY: (409, "not_empty"), errno.ENXIO: (409, "not_a_file"), errno.ENOSPC: (507, "disk_full"),
    errno.EDQUOT: (507, "disk_full"), errno.EROFS: (403, "read_only"), errno.EBUSY: (409, "reserved"),
    errno.EAGAIN: (423, "locked"), errno.EFBIG: (413, "too_large")}
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
         stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def as_bytes(path):
    return path if isinstance(path, bytes) else path.encode()


def quoted(path):
    """As a part of a URL, every byte that is special in one encoded."""
    return urllib.parse.quote(as_bytes(path), safe="/")


def field(name, value):
    """{"name": text}, or {"name_b64": ...} for what is no text, or has a NUL."""
    value = as_bytes(value)
    try:
        if b"\0" in value:
            raise UnicodeDecodeError("ascii", value, 0, 1, "NUL")
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + "_b64": base64.b64encode(value).decode()}


def bytes_of(object_, name):
    """The other way round; None: there is none."""
    if name + "_b64" in object_:
        return base64.b64decode(object_[name + "_b64"], validate=True)
    return object_[name].encode() if object_.get(name) is not None else None


class Files:
    """The files of one workspace, over a connection that is kept."""

    def __init__(self, daemon, workspace, key=None, timeout=PATIENCE):
        self.daemon, self.workspace, self.key = daemon, workspace, key
        self.url = f"/v1/workspaces/{workspace}/files"
        self.timeout = timeout
        self.connection = None

    def request(self, method, path, body=None, headers=None):
        if not self.connection:
            self.connection = self.daemon.connect(self.timeout)
        try:
            return self.daemon.request(method, path, body, key=self.key, headers=headers, connection=self.connection)
        except (BrokenPipeError, ConnectionResetError):
            return self.answer_before_the_end()
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def answer_before_the_end(self):
        """Of one who takes no more of the body, and says why."""
        try:
            return Answer(self.connection.getresponse())
        finally:
            self.close()

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def get(self, path, query="", **headers):
        head = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("GET", self.url + quoted(path) + query, headers=head)

    def put(self, path, body, query="", **headers):
        head = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("PUT", self.url + quoted(path) + query, body, head)

    def delete(self, path, recursive=False):
        return self.request("DELETE", self.url + quoted(path) + ("?recursive=1" if recursive else ""))

    def stat(self, path, follow=False):
        return self.get(path, "?stat=1&follow=1" if follow else "?stat=1")

    def act(self, action, body, **headers):
        head = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", f"{self.url}-{action}", body, head)

    def entries(self, path, depth=1, limit=1000, brief=False):
        """Everything, page by page; an Answer where it fails."""
        found, cursor = [], ""
        while True:
            answer = self.get(path, f"?list=1&depth={depth}&limit={limit}" + "&brief=1" * brief + (f"&cursor={quoted(cursor)}" if cursor else ""))
            if answer.status != 200:
                return answer
            page = answer.json
            assert len(page["entries"]) <= limit
            found += page["entries"]
            if not page["next"]:
                return found
            assert page["next"] != cursor, "the list does not go on"
            cursor = page["next"]


def open_up(path):
    """Lets this process look into a directory; what its mode was, or None."""
    if os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        return None
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    os.chmod(path, mode | 0o700)
    return mode


def content(path):
    with open(path, "rb") as file:
        return file.read()


def snapshot(top):
    """{relative path: (kind, mode, bytes or target)} of what is below, seen from the host, whatever its modes are."""
    found, todo, closed = {}, [(as_bytes(top), b"")], []
    while todo:
        where, above = todo.pop()
        mode = open_up(where)
        if mode is not None:
            closed.append((where, mode))
        for name in os.listdir(where):
            path, relative = os.path.join(where, name), os.path.join(above, name)
            try:
                st = os.lstat(path)
            except FileNotFoundError:  # one that is not whole yet comes and goes
                continue
            kind, data = KINDS[stat.S_IFMT(st.st_mode)], None
            if kind == "directory":
                todo.append((path, relative))
            elif kind == "symlink":
                data = os.readlink(path)
            elif kind == "file":
                try:
                    data = readable_content(path, st)
                except FileNotFoundError:
                    continue
            found[relative] = (kind, 0 if kind == "symlink" else stat.S_IMODE(st.st_mode), data)
    for path, mode in reversed(closed):
        os.chmod(path, mode)
    return found


def readable_content(path, st):
    try:
        return content(path)
    except PermissionError:
        os.chmod(path, 0o600)
        try:
            return content(path)
        finally:
            os.chmod(path, stat.S_IMODE(st.st_mode))


def processes_of(daemon, name):
    """Process ids below the broker with that name."""
    found = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except (OSError, ValueError):
            continue
        comm, rest = text[text.index("(") + 1:].rsplit(")", 1)
        if comm == name and int(rest.split()[1]) == daemon.process.pid:
            found.append(int(pid))
    return found


class FilesTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.space = self.workspace()
        self.files = Files(self.daemon, self.space)
        self.host = self.host_path(self.space)

    def tearDown(self):
        self.files.close()
        super().tearDown()

    def host_path(self, workspace):
        return f"{self.daemon.state}/main/threads/{workspace}"

    def inside(self, command, **more):
        return self.daemon.execute(self.space, command, **more)

    def python(self, program, *arguments):
        """Runs Python inside; what it printed."""
        result = self.daemon.post(f"/v1/workspaces/{self.space}/exec", {"argv": ["python3", "-c", program, *arguments]}).json
        self.assertEqual(0, result["exit_code"], result)
        return result["stdout"]

    def begin(self, program, *arguments):
        """Python that goes on inside until it is killed; its exec id, when it has printed a line."""
        answer = self.daemon.post(f"/v1/workspaces/{self.space}/exec",
                                  {"argv": ["python3", "-uc", program, *arguments], "background": True})
        self.assertEqual(202, answer.status, answer.bytes)
        one = answer.json["exec_id"]
        self.until(lambda: b"\n" in self.output(one), "it does not begin")
        return one

    def output(self, one):
        return self.daemon.get(f"/v1/workspaces/{self.space}/exec/{one}/output?format=raw").bytes

    def end(self, one):
        self.daemon.post(f"/v1/workspaces/{self.space}/exec/{one}/kill")
        self.daemon.get(f"/v1/workspaces/{self.space}/exec/{one}/output?follow=1")

    def until(self, condition, words, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, words)
            time.sleep(0.02)

    def fails(self, answer, status, code):
        self.assertEqual((status, code), (answer.status, answer.code if answer.bytes else None), answer.bytes[:500])

    def typed(self, answer):
        """Good, or an error that says what it is, never a mishap of ours."""
        if answer.status >= 400:
            self.assertIn(answer.status, (400, 403, 404, 409, 412, 413, 416, 423, 507), answer.bytes[:500])
            self.assertTrue(json.loads(answer.bytes)["error"]["message"])
        return answer

    def no_litter(self, top=None):
        """Nothing of ours is left among the files."""
        left = [path for path in snapshot(top or self.host) if b".carrel-" in path or path.startswith(b".cache/")]
        self.assertEqual([], left)
