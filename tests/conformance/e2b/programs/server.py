# SPDX-License-Identifier: Apache-2.0
"""A small web application is written, started in the background, and opened by its public address."""
import json
import ssl
import time
import urllib.error
import urllib.request

from e2b import Sandbox

APP = """
import http.server, json
class App(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        body = json.dumps({'sum': sum(said)}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('0.0.0.0', 8000), App).serve_forever()
"""

with Sandbox.create(timeout=120) as sandbox:
    sandbox.files.write("app.py", APP)
    server = sandbox.commands.run("python3 app.py", background=True, timeout=0)
    url = f"https://{sandbox.get_host(8000)}/"
    request = urllib.request.Request(url, data=json.dumps([1, 2, 39]).encode())
    for _ in range(200):
        try:
            answer = json.load(urllib.request.urlopen(request, context=ssl.create_default_context()))
            break
        except urllib.error.HTTPError as error:
            assert error.code == 502, error  # it does not listen yet
            time.sleep(0.1)
    assert answer == {"sum": 42}, answer
    server.kill()
print("done")
