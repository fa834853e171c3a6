# SPDX-License-Identifier: Apache-2.0
"""The daemon at the other end: one request a connection, over its socket or at its address."""
import base64
import http.client
import json
import os
import socket
import ssl
import urllib.parse
import urllib.request

from words import Failure

CONNECT_S = 10
ANSWER_MOST = 64 << 20
ERRORS = (OSError, http.client.HTTPException, ValueError)


class Lost(Failure):
    """The connection broke; whether the daemon has done what it was asked for is not known, unless it was not sent."""

    def __init__(self, message, was_sent):
        super().__init__(message)
        self.was_sent = was_sent


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("carrel", timeout=CONNECT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connection_to(url):
    """To https through a proxy where there is one; else the key would go to it in the clear."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=CONNECT_S)
    context = ssl.create_default_context()
    proxy = None if urllib.request.proxy_bypass(parts.hostname) else urllib.request.getproxies().get("https")
    if not proxy:
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=CONNECT_S, context=context)
    through = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    connection = http.client.HTTPSConnection(through.hostname, through.port or 80, timeout=CONNECT_S, context=context)
    connection.set_tunnel(parts.hostname, parts.port or 443)
    return connection


def encode(name, data):
    """{name: text}, or {name_b64: …} of what is no text."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode()}


def decode(value, name):
    """The bytes of such a member; b"": there is none."""
    if isinstance(value.get(name), str):
        return value[name].encode()
    return base64.b64decode(value.get(f"{name}_b64") or "")


class Daemon:
    def __init__(self, socket_path, url):
        self.socket_path, self.url, self.key = socket_path, url, os.environ.get("CARREL_KEY")

    def open(self, method, path, body=None, accept="application/json", kind="application/json"):
        """(connection, answer 2xx). The caller closes the connection; an answer may come for as long as it likes."""
        headers = {"Accept": accept, "User-Agent": "carrel", "Connection": "close"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        if method in ("POST", "PUT"):
            headers["Content-Type"] = kind
        connection = self.connect()
        try:
            base = urllib.parse.urlsplit(self.url).path if not self.socket_path else ""
            try:
                connection.request(method, base + path, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has answered before it had read all
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                raise self.refusal(answer)
            return connection, answer
        except ERRORS as error:
            connection.close()
            raise Lost(f"the connection to the daemon broke: {error}", True) from None
        except BaseException:
            connection.close()
            raise

    def connect(self):
        try:
            connection = UnixConnection(self.socket_path) if self.socket_path else connection_to(self.url)
            connection.connect()
            connection.sock.settimeout(None)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a stream may be silent for long
            return connection
        except ERRORS as error:
            raise Lost(self.no_daemon(error), False) from None

    def no_daemon(self, error):
        if not self.socket_path:
            return f"no daemon answers at {self.url[:120]} ({str(error)[:120]}); check CARREL_URL"
        if os.path.exists(self.socket_path) and not os.access(self.socket_path, os.W_OK):
            return (f"the daemon's socket {self.socket_path} is not open to this user; set CARREL_URL and CARREL_KEY instead")
        return f"no daemon listens at {self.socket_path}; start one with: carrel serve"

    @staticmethod
    def refusal(answer):
        """What an answer other than 2xx says."""
        try:
            error = json.loads(answer.read(ANSWER_MOST))["error"]
            message, code = str(error.get("message") or ""), str(error.get("code") or "")
            details = error.get("details") or {}
            path, reason = str(details.get("path") or ""), details.get("reason")
        except (KeyError, TypeError, AttributeError, *ERRORS):
            message = code = path = ""
            reason = None
        if answer.status == 401:
            text = f"{message or 'the daemon wants a key'}; set CARREL_KEY to a key of this daemon"
        elif message:
            text = f"{path[:120]}{': ' if path else ''}{message[:200]}{f' ({code[:40]})' if code else ''}"
        else:
            text = f"the daemon answered with status {answer.status}"
        if answer.status == 500 and answer.headers.get("X-Request-Id"):
            text += f"; request {answer.headers['X-Request-Id']} in its log"
        failure = Failure(text)
        failure.status, failure.reason = answer.status, reason
        return failure

    def ask(self, method, path, body=None, most=ANSWER_MOST, **more):
        """The bytes of the answer."""
        connection, answer = self.open(method, path, body, **more)
        try:
            data = answer.read(most + 1)
            if answer.length and len(data) <= most:
                raise http.client.IncompleteRead(data)
        except ERRORS as error:
            raise Lost(f"the connection to the daemon broke: {error}", True) from None
        finally:
            connection.close()
        if len(data) > most:
            raise Failure("the daemon's answer is too long")
        return data

    def ask_json(self, method, path, body=None):
        data = self.ask(method, path, None if body is None else json.dumps(body).encode())
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise Lost("the daemon's answer is not JSON", True) from None

    def look(self, path):
        """(200, what is there) or (404, None); (0, None): for now nobody can tell."""
        try:
            return 200, self.ask_json("GET", path)
        except Failure as failure:
            return (404, None) if getattr(failure, "status", 0) == 404 else (0, None)
