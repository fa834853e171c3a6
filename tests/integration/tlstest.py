# SPDX-License-Identifier: Apache-2.0
"""A server of HTTP over TLS of the tests' own, with an authority of its own."""
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading


class Authority:
    """Certificates by `openssl`, in a directory."""

    def __init__(self, place):
        os.makedirs(place, exist_ok=True)
        self.place, self.file = place, f"{place}/ca.pem"
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "5",
                     "-subj", "/CN=an authority of the test", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        os.chmod(self.file, 0o644)

    def openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def context(self, *names, days=5):
        """Of a server with these names."""
        stem = names[0].replace("*", "any")
        with open(f"{self.place}/{stem}.ext", "w", encoding="ascii") as file:
            file.write("subjectAltName=" + ",".join(f"DNS:{name}" for name in names) + "\nbasicConstraints=CA:FALSE\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{stem}.key", "-out", f"{stem}.csr", "-subj", "/CN=a server")
        self.openssl("x509", "-req", "-in", f"{stem}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days), "-extfile", f"{stem}.ext",
                     "-out", f"{stem}.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{self.place}/{stem}.pem", f"{self.place}/{stem}.key")
        return context


class Handler(http.server.BaseHTTPRequestHandler):
    """Says again what it was asked. /raw/NAME: one of `answers`, by the byte; /to/HOST…: sends there."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        raw = self.server.answers.get(self.path.split("?")[0])
        if raw is not None:
            pieces = raw(self) if callable(raw) else raw
            for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                self.wfile.write(piece)
                self.wfile.flush()
            self.close_connection = True
            return
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", "https://" + self.path[4:])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        out = json.dumps({"method": self.command, "path": self.path, "headers": dict(self.headers.items()), "body": body.decode("latin-1")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Again", self.headers.get("Authorization", "none"))
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(out)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_TRACE = do_PATCH = do_GET

    def log_message(self, *_):
        pass


class TlsWeb(http.server.ThreadingHTTPServer):
    """`seen`: (method, path, headers, body) of each request; `answers`: bytes, or pieces of them, or a function that makes them, by path."""
    daemon_threads, request_queue_size = True, 128

    def __init__(self, context, handler=Handler):
        self.seen, self.answers, self.context = [], {}, context
        super().__init__(("127.0.0.1", 0), handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client_address):
        try:
            with self.context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
                wrapped.unwrap()  # so that an end is told from a cut
        except OSError:
            pass

    def handle_error(self, request, client_address):
        pass

    def shutdown_request(self, request):
        try:
            request.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.close_request(request)

    def close(self):
        self.shutdown()
        self.server_close()
