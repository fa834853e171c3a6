# SPDX-License-Identifier: Apache-2.0
"""Downloads from a registry, one at a time; every way in which they fail is said in words."""
import base64
import hashlib
import http.client
import netrc
import os
import socket
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

from words import Failure, size

PAGE_MOST = 64 << 20
PACKAGE_MOST = 1 << 30
BLOCK = 1 << 16
REDIRECTS = 5
SLOWEST = 100  # bytes in a second, over as long as the patience lasts
PROGRESS_S = 0.2

# What the library raises, in the order it is looked for: why, and the remedy before the name of the option.
TRY_OR_MIRROR = "run it again, or name a mirror with"
FAILURES = (
    (socket.gaierror, "the name of its host is not known here", "check the network, or name a mirror with"),
    (UnicodeError, "the name of its host is not known here", "check the network, or name a mirror with"),
    (TimeoutError, "it sends nothing for too long", "try again, raise --timeout, or name a mirror with"),
    (ssl.SSLCertVerificationError, "its certificate is not signed by an authority known here",
     "name the file of that authority with --ca, or a mirror with"),
    (http.client.RemoteDisconnected, "the connection was closed without an answer", TRY_OR_MIRROR),
    (http.client.IncompleteRead, "the connection broke off before the end", TRY_OR_MIRROR),
    (ConnectionResetError, "the connection broke off", TRY_OR_MIRROR),
    (ConnectionError, "no server answers at this address", "check the network, or name a mirror with"),
    (http.client.InvalidURL, "it is no address", "give an address that begins with https:// to"),
)


def shown(url):
    """Without credentials and query, for people."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    end = min((rest.find(c) for c in "/?#" if c in rest), default=len(rest))
    rest = rest[:end].rpartition("@")[2] + rest[end:]
    return f"{scheme}{mark}{rest}".partition("?")[0].partition("#")[0][:127]


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """They are followed here, where each is looked at."""

    def http_error_302(self, *_):
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def origin(parts):
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def credentials(parts):
    """"user:password" of an address itself, or of ~/.netrc; None: neither has any."""
    if parts.username is not None:
        return f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    try:
        found = netrc.netrc(os.path.expanduser("~/.netrc")).authenticators(parts.hostname)
    except (OSError, netrc.NetrcParseError):
        return None
    return f"{found[0]}:{found[2]}" if found else None


def join(page, url):
    """The address of a package as seen from the page that names it, with that page's credentials if they are of one host."""
    joined = urllib.parse.urljoin(page, url)
    try:
        parts, from_ = urllib.parse.urlsplit(joined), urllib.parse.urlsplit(page)
        if from_.username is not None and parts.username is None and origin(parts) == origin(from_):
            return parts._replace(netloc=f"{from_.netloc.rpartition('@')[0]}@{parts.netloc}").geturl()
    except ValueError:
        pass  # told when it is asked
    return joined


class Fetch:
    """`option`, "--index" or "--registry", names the remedy; a server that sends nothing for `patience` seconds is given up."""

    def __init__(self, ca, patience, shows_progress):
        self.ca, self.patience, self.shows_progress = ca, patience, shows_progress
        self.option, self.opener, self.is_shown = "", None, False

    def page(self, url, accept):
        """(its bytes, the address it came from in the end)."""
        pieces = []
        place = self.load(url, {"Accept": accept, "Accept-Encoding": "gzip"}, pieces.append, PAGE_MOST, None)
        return b"".join(pieces), place

    def package(self, page, package, file):
        """The package's bytes to `file`, checked against its hash."""
        digest = hashlib.new(package.algorithm)
        url = join(page, package.url)

        def keep(piece):
            digest.update(piece)
            try:
                while piece:
                    piece = piece[file.write(piece):]
            except OSError as error:
                raise Failure(f"write what {shown(url)} sends (make room where the state directory is, and run it again)",
                              error) from None
        self.load(url, {}, keep, PACKAGE_MOST, package.file)
        if digest.hexdigest() != package.hash:
            raise Failure(f"{package.file} is not what the index promises ({package.algorithm} is {digest.hexdigest()[:16]}..., "
                          f"not {package.hash[:16]}...); nothing of it is used: try again, and if that does not help, another "
                          "mirror")

    def load(self, url, headers, keep, most, label):
        """Follows redirects; returns the address of the answer."""
        here = url
        for _ in range(REDIRECTS + 1):
            request = self.request(here, headers, url)
            try:
                with self.ask(request, here) as answer:
                    self.read(answer, keep, most, label, here)
                return here
            except urllib.error.HTTPError as error:
                with error:
                    here = self.redirected(error, here)
        raise Failure(f"{shown(url)}: it leads from one address to the next without end; name a mirror with {self.option}")

    def request(self, url, headers, first):
        try:
            parts, begun = urllib.parse.urlsplit(url), urllib.parse.urlsplit(first)
            user = credentials(parts)
            if user is None and origin(parts) == origin(begun):
                user = credentials(begun)
            # What was asked for safely is not fetched otherwise.
            if parts.scheme not in ("http", "https") or (begun.scheme, parts.scheme) == ("https", "http") or not parts.hostname:
                raise self.failure(url, "it is, or leads to, no address that is used here",
                                   "give an address that begins with https:// to")
        except ValueError:
            raise self.failure(url, "it is no address", "give an address that begins with https:// to") from None
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        request = urllib.request.Request(urllib.parse.quote(bare, safe="%/:=&?~#+!$,;'@()*[]"),
                                         headers={"User-Agent": "carrel", **headers})
        if user is not None:
            request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
        return request

    def ask(self, request, url):
        try:
            if not self.opener:
                context = ssl.create_default_context(cafile=self.ca)
                self.opener = urllib.request.build_opener(NoRedirects, urllib.request.HTTPSHandler(context=context))
        except (ssl.SSLError, OSError):
            raise self.failure(url, "the file of the certificate authority is of no use",
                               "check --ca, package_ca or SSL_CERT_FILE, or name a mirror with") from None
        try:
            return self.opener.open(request, timeout=self.patience)
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.explain(url, error) from None

    def read(self, answer, keep, most, label, url):
        total = answer.length
        # Of a page alone: what a package is packed with is a part of it, whatever the server calls it.
        is_packed = not label and answer.headers.get("Content-Encoding") == "gzip"
        unpack = zlib.decompressobj(wbits=31) if is_packed else None
        got, kept, since, before, said = 0, 0, time.monotonic(), 0, 0.0
        try:
            while piece := answer.read1(BLOCK):
                got, now = got + len(piece), time.monotonic()
                while piece:
                    plain = unpack.decompress(piece, BLOCK) if unpack else piece
                    piece = unpack.unconsumed_tail if unpack else b""
                    kept += len(plain)
                    if kept > most:
                        raise Failure(f"{shown(url)} sends more than a package has; check {self.option}")
                    keep(plain)
                if now - since >= self.patience:
                    if got - before < SLOWEST * (now - since):
                        raise TimeoutError
                    since, before = now, got
                if label and total and self.shows_progress and now - said >= PROGRESS_S:
                    said, self.is_shown = now, True
                    print(f"\r  {label[:60]}  {size(got)} of {size(total)}\033[K", end="", file=sys.stderr, flush=True)
            if total is not None and got < total:
                raise http.client.IncompleteRead(b"")
            if unpack and not unpack.eof and got:
                raise http.client.IncompleteRead(b"")
        except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
            raise self.explain(url, error) from None
        finally:
            if self.is_shown:
                print("\r\033[K", end="", file=sys.stderr, flush=True)
            self.is_shown = False

    def redirected(self, error, url):
        where = error.headers.get("Location")
        if error.code in (301, 302, 303, 307, 308) and where:
            return urllib.parse.urljoin(url, where)
        if error.code in (404, 410):
            raise Failure(f"{shown(url)} is not there (status {error.code}); check {self.option}")
        if error.code in (401, 403, 407):
            raise Failure(f"{shown(url)} does not let us in (status {error.code}); put name and password into the address of "
                          f"{self.option}, or into ~/.netrc")
        raise Failure(f"{shown(url)} answers with status {error.code}; try again, or name a mirror with {self.option}")

    def explain(self, url, error):
        cause = error.reason if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception) else error
        for kind, why, remedy in FAILURES:
            if isinstance(cause, kind):
                return self.failure(url, why, remedy)
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        return self.failure(url, why[:120], "try again, or name a mirror with")

    def failure(self, url, why, remedy):
        return Failure(f"{shown(url)}: {why}; {remedy} {self.option}")
