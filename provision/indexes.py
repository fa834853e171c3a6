# SPDX-License-Identifier: Apache-2.0
"""What an index of packages says, and which of them suits this host. Pure: a page in, a choice out; the page is anybody's.

A package without a hash is none, and a name that would lead elsewhere on disk, or drive a terminal, is passed over."""
import base64
import binascii
import html.parser
import json
import os
import re
from dataclasses import dataclass, replace

from words import Failure

PLAIN = re.compile(r"[A-Za-z0-9._+!-]{1,255}")
RELEASE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}")
SHA256 = re.compile(r"[0-9a-f]{64}")
URL_MOST = 2048
VERSION_MOST = 48


@dataclass(frozen=True)
class Host:
    machine: str  # as uname says: "x86_64", "aarch64"
    glibc: int | None  # the 36 of 2.36; None: musl
    avx2: bool

    @property
    def libc(self):
        return "musl" if self.glibc is None else "glibc"


def this_host():
    try:
        glibc = int(re.match(r"glibc \d+\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")[1])
    except (ValueError, TypeError, OSError):
        glibc = None
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            avx2 = re.search(r"^flags\b.*\bavx2\b", file.read(), re.M) is not None
    except OSError:
        avx2 = False
    return Host(os.uname().machine, glibc, avx2)


@dataclass(frozen=True)
class Package:
    file: str
    version: str
    url: str  # as the page has it: may be relative to the page
    algorithm: str  # "sha256", "sha512"
    hash: str  # in hex


# --- an index of Python packages ---


def score_tag(tag, host):
    """How well one platform fits; 0: not at all. The build for musl is static and runs anywhere, but the host's own kind
    comes first."""
    if tag == "any":
        return 3
    kind, machine, _ = tag.partition("_" + host.machine)
    if not machine or not tag.endswith(machine):
        return 0
    if kind == "linux":
        return 2
    if re.fullmatch(r"musllinux_1_\d{1,5}", kind):
        return 3 if host.glibc is None else 1
    needs = re.fullmatch(r"manylinux_2_(\d{1,5})", "manylinux_2_17" if kind == "manylinux2014" else kind)
    return 3 if needs and host.glibc is not None and host.glibc >= int(needs[1]) else 0


def score_wheel(tags, host):
    return max(score_tag(tag, host) for tag in tags.split("."))


def read_release(version):
    """The numbers of a release, comparable; None: it is none."""
    if not RELEASE.fullmatch(version):
        return None
    numbers = [int(part) for part in version.split(".")]
    return numbers + [0] * (8 - len(numbers))


class Anchors(html.parser.HTMLParser):
    """The files of a page in HTML: (name, url, sha256 or None). Only anchors count."""

    def __init__(self):
        super().__init__()
        self.files = []

    def handle_starttag(self, tag, attrs):
        names = dict(reversed(attrs))  # the first of a name counts
        if tag != "a" or not names.get("href") or "data-yanked" in names:
            return
        url, _, fragment = names["href"].partition("#")
        found = re.search(r"(?:^|&)sha256=([^&]*)", fragment)
        self.files.append((url.partition("?")[0].rpartition("/")[2], url, found and found[1]))


def files_of_html(page):
    anchors = Anchors()
    try:
        anchors.feed(page.decode(errors="replace"))  # not closed: half a tag at the end is none
    except (AssertionError, ValueError):
        pass  # of what the parser has no idea of; what was found before counts
    return anchors.files


def files_of_json(page):
    listed = page.get("files")
    for file in listed if isinstance(listed, list) else ():
        if not isinstance(file, dict) or file.get("yanked") not in (None, False):
            continue
        hashes = file.get("hashes")
        yield file.get("filename"), file.get("url"), hashes.get("sha256") if isinstance(hashes, dict) else None


def load(page):
    """An object, or None."""
    try:
        value = json.loads(page)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def choose_wheel(page, project, version, host):
    """The wheel of that project that runs on that host: of `version`, or the newest release."""
    best, rank, others, unhashed = None, (), False, False
    document = load(page) if page.startswith(b"{") else None
    for name, url, digest in files_of_html(page) if document is None else files_of_json(document):
        if not isinstance(name, str) or not isinstance(url, str) or not PLAIN.fullmatch(name) or len(url) >= URL_MOST:
            continue
        parts = name.removesuffix(".whl").split("-")
        if not name.endswith(".whl") or len(parts) not in (5, 6) or not all(parts) or parts[0].lower() != project:
            continue
        others = True
        score, release = score_wheel(parts[-1], host), read_release(parts[1])
        wanted = parts[1] == version if version else release is not None
        if score == 0 or not wanted or len(parts[1]) >= VERSION_MOST or (release or [], score) <= rank:
            continue
        if not isinstance(digest, str) or not SHA256.fullmatch(digest.lower()):
            unhashed = True
            continue
        best, rank = Package(name, parts[1], url, "sha256", digest.lower()), (release or [], score)
    if best:
        return best
    if unhashed:
        raise Failure(f"the index gives no sha256 for {project}, so that it cannot be checked; use another index")
    if not others:
        raise Failure(f"the index has no wheel of {project}")
    raise Failure(f"the index has no {project}{f' {version}' if version else ''} for this host ({host.machine}, {host.libc})")


# --- npm's registry ---


def bun_package(host):
    """The package that has bun for this host; None: there is none."""
    kinds = {"x86_64": "x64", "aarch64": "aarch64"}
    if host.machine not in kinds:
        return None
    baseline = "-baseline" if host.machine == "x86_64" and not host.avx2 else ""
    return f"@oven/bun-linux-{kinds[host.machine]}{'-musl' if host.glibc is None else ''}{baseline}"


def read_integrity(text):
    """"sha512-BASE64", among others with blanks between: in hex, or None."""
    found = re.search(r"(?:^|\s)sha512-([A-Za-z0-9+/]{86}==)(?:[?\s]|$)", text if isinstance(text, str) else "")
    try:
        return base64.b64decode(found[1], validate=True).hex() if found else None
    except binascii.Error:
        return None


def member(value, *names):
    """What is at these names, one inside the other; None: nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def choose_release(page, version):
    """Of a document of npm's registry: what it calls the latest, or `version`."""
    document = load(page)
    if document is None:
        raise Failure("the registry's answer is not JSON")
    version = version or member(document, "dist-tags", "latest")
    if not isinstance(version, str):
        raise Failure("the registry has no version of it")
    url = member(document, "versions", version, "dist", "tarball")
    if not isinstance(url, str) or len(url) >= URL_MOST or len(version) >= VERSION_MOST:
        raise Failure(f"the registry has no version {version[:40]} of it")
    digest = read_integrity(member(document, "versions", version, "dist", "integrity"))
    if digest is None:
        raise Failure("the registry gives no sha512 for it, so that it cannot be checked")
    file = re.split(r"[?#]", url.rpartition("/")[2], maxsplit=1)[0]
    if not PLAIN.fullmatch(version) or not PLAIN.fullmatch(file):  # both are shown
        raise Failure("the registry gives it a version or a file name with odd characters")
    return Package(file, version, url, "sha512", digest)


def of_registry(package, registry):
    """A registry that passes another's answers on names the other's addresses; the files are to be had from it."""
    found = re.match(r".*?://[^/]*(/@oven/.*)", package.url)
    return replace(package, url=registry + found[1]) if found else package
