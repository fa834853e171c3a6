# SPDX-License-Identifier: Apache-2.0
"""A server that speaks as much of Elasticsearch's _bulk as an exporter sees, strictly, and fails when told to."""
import base64
import contextlib
import gzip
import http.server
import json
import random
import re
import socket
import ssl
import struct
import threading
import time

ID = re.compile(r"^[1-9][0-9]*-[0-9a-f]{64}$")


class Bulk:
    """`failures` are taken one by one: names of the methods below, or None for a request that goes well."""

    def __init__(self, port=0, auth=None, context=None, index="logs-carrel.audit-default"):
        self.port, self.auth, self.context, self.index = port, auth, context, index
        self.documents, self.order, self.problems, self.failures = {}, [], [], []
        self.requests = self.repeats = self.zipped = 0
        self.poison = lambda document: False  # what a mapping refuses
        self.dice = random.Random(7)
        self.lock = threading.Lock()
        self.connections = []
        self.server = None
        self.start()

    def start(self):
        bulk = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                bulk.connections.append(self.connection)

            def do_POST(self):
                bulk.post(self)

            def log_message(self, *args):
                pass
        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # whoever asked was killed, or the server was
        server = Server(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        if self.context:
            server.socket = self.context.wrap_socket(server.socket, server_side=True)
        self.port, self.server = server.server_port, server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        self.server = None
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections = []

    @property
    def url(self):
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def complain(self, what):
        self.problems.append(what)

    def post(self, request):
        length = int(request.headers["Content-Length"])
        body = request.rfile.read(length)
        if len(body) < length:  # who sent it was killed over it: nobody waits for an answer
            request.close_connection = True
            return
        with self.lock:
            self.requests += 1
            failure = self.failures.pop(0) if self.failures else None
        if self.auth and request.headers["Authorization"] != self.auth:
            self.answer(request, 401, {"error": {"type": "security_exception"}, "status": 401})
            return
        if request.headers.get("Content-Encoding") == "gzip":
            self.zipped += 1
            body = gzip.decompress(body)
        pairs = self.parse(request, body)
        getattr(self, f"do_{failure or 'well'}")(request, pairs)

    def parse(self, request, body):
        if request.path != "/_bulk" or request.headers["Content-Type"] != "application/x-ndjson":
            self.complain(f"{request.path} {request.headers['Content-Type']}")
        lines = body.split(b"\n")
        if lines.pop() != b"" or len(lines) % 2 or not lines:
            self.complain("not lines in pairs, with a newline at the end")
        pairs = []
        for action, document in zip(lines[::2], lines[1::2]):
            made = json.loads(action)
            if list(made) != ["create"] or set(made["create"]) != {"_index", "_id"} or made["create"]["_index"] != self.index:
                self.complain(f"action {action!r}")
            document = json.loads(document)
            if not ID.match(made["create"]["_id"]) or document["event"]["id"] != made["create"]["_id"]:
                self.complain(f"id {action!r}")
            pairs.append((made["create"]["_id"], document))
        return pairs

    def store(self, key, document):
        """The answer to one item."""
        with self.lock:
            if self.poison(document):
                return {"_id": key, "status": 400, "error": {"type": "mapper_parsing_exception", "reason": "not\x1b[31m good"}}
            if key in self.documents:
                self.repeats += 1
                return {"_id": key, "status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "exists"}}
            self.documents[key] = document
            self.order.append(key)
            return {"_id": key, "_index": self.index, "_version": 1, "result": "created", "status": 201}

    def answer(self, request, status, value, headers=()):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        for name, text in headers:
            request.send_header(name, text)
        request.end_headers()
        request.wfile.write(body)

    def answer_items(self, request, items):
        self.answer(request, 200, {"took": 3, "errors": any(i["status"] > 299 for i in items),
                                   "items": [{"create": item} for item in items]})

    # --- how a request can go ---

    def do_well(self, request, pairs):
        self.answer_items(request, [self.store(*pair) for pair in pairs])

    def do_busy(self, request, pairs):
        self.answer(request, 429, {"error": {"type": "es_rejected_execution_exception"}, "status": 429})

    def do_later(self, request, pairs):
        self.answer(request, 503, b"<html>no backend</html>", [("Retry-After", "1")])

    def do_mixed(self, request, pairs):
        """errors:true: some are made, some refused for now, in any order."""
        def one(pair):
            if self.dice.random() < 0.5:
                status = self.dice.choice([429, 503])
                return {"_id": pair[0], "status": status, "error": {"type": "unavailable", "reason": "later"}}
            return self.store(*pair)
        self.answer_items(request, [one(pair) for pair in pairs])

    @staticmethod
    def reset(request):
        """A TCP reset, not an end."""
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.close_connection = True
        request.connection.close()

    def do_reset(self, request, pairs):
        self.reset(request)

    def do_torn(self, request, pairs):
        """All of it is made, and the answer never comes whole."""
        items = [self.store(*pair) for pair in pairs]
        body = json.dumps({"took": 1, "errors": False, "items": [{"create": item} for item in items]}).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[:len(body) // 2])
        request.wfile.flush()
        self.reset(request)

    def do_cut(self, request, pairs):
        """An answer that is whole as HTTP and not as JSON."""
        for pair in pairs:
            self.store(*pair)
        self.answer(request, 200, b'{"took":1,"errors":false,"items":[{"cre')

    def do_other(self, request, pairs):
        """An answer to another request: items are missing."""
        self.answer(request, 200, {"took": 1, "errors": False, "items": []})

    def do_slow(self, request, pairs):
        time.sleep(0.5)
        self.do_well(request, pairs)

    def do_large(self, request, pairs):
        self.answer(request, 413, b"")

    def do_bad(self, request, pairs):
        """A proxy's 400: of no document in particular."""
        self.answer(request, 400, b"<html>The plain HTTP request was sent to HTTPS port</html>")


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def tls(cert, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
