#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# ATTACK 72: get at a secret that is put into requests: have the server say it again, send it to another path, another host, by another method, in another header, twice, to another host by its Host inside TLS, over plain HTTP
# MUST: the value is in the one header of the requests that the rule lets through, and comes back nowhere
# CONTROL: net-mask,net-requests
"""A program inside has a placeholder, and everything else is as the rule says."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
from nettest import Attack, Names, Web
from tlstest import Authority, TlsWeb

API, OTHER, VALUE = "api.example.org", "www.example.org", "sk-live-0123456789abcdefXYZ"
SCRIPT = """
import os, subprocess, sys
key, api, other, plain = os.environ['EXAMPLE_KEY'], *sys.argv[1:]
def curl(*words):
    subprocess.run(['curl', '-sSi', '-m', '20', *words])
bearer = 'Authorization: Bearer ' + key
curl('-H', bearer, api + '/v1/x')
curl('-H', bearer, '-H', 'Range: bytes=0-3', api + '/v1/again')
curl('-H', bearer, api + '/v1/pieces')
curl('-H', bearer, api + '/admin')
curl('-H', bearer, '--path-as-is', api + '/v1/../admin')
curl('-H', bearer, '--path-as-is', api + '/v1/%2e%2e/admin')
curl('-H', bearer, '-X', 'TRACE', api + '/v1/x')
curl('-H', bearer, '-X', 'DELETE', api + '/v1/x')
curl('-H', 'X-Other: ' + key, '-d', key, '-X', 'GET', api + '/v1/x?key=' + key)
curl('-H', bearer, '-H', 'AUTHORIZATION: ' + key, api + '/v1/x')
curl('-H', bearer, '-H', 'Host: www.example.org', api + '/v1/fronted')
curl('-H', bearer, other + '/')
curl('-H', bearer, '-L', api + '/v1/to')
curl('-H', bearer, plain + '/')
"""
attack = Attack()
authority = Authority(f"{os.environ['TMP']}/authority")
os.chmod(authority.place, 0o755)
api, other, web = TlsWeb(authority.context(API)), TlsWeb(authority.context(OTHER)), Web()
names = Names({API: ["127.0.0.1"], OTHER: ["127.0.0.1"]})
value = VALUE.encode()
api.answers = {"/v1/again": b"HTTP/1.1 200 " + value + b"\r\nX-It: " + value + b"\r\nContent-Length: %d\r\n\r\n" % len(value) + value,
               "/v1/pieces": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] + [b"1\r\n%c\r\n" % byte for byte in value] + [b"0\r\n\r\n"],
               "/v1/to": f"HTTP/1.1 302 Found\r\nLocation: https://{OTHER}:{other.port}/\r\nContent-Length: 0\r\n\r\n".encode()}
with open(f"{os.environ['TMP']}/key", "w", encoding="ascii") as file:
    file.write(VALUE)
options = ["--nameserver", names.address, "--trust", authority.file, "--secret", f"example-key={os.environ['TMP']}/key",
           "--allow", f"{API}:{api.port} methods=GET paths=/v1/* secret=example-key", "--allow", f"{OTHER}:{other.port} tls=inspect", "--allow", f"{API}:{web.port}"]
for name in (API, OTHER):
    options += ["--allow-private", name]
shown = attack.run(options, SCRIPT, f"https://{API}:{api.port}", f"https://{OTHER}:{other.port}", f"http://{API}:{web.port}")
attack.must(VALUE not in shown, "an answer has it")
attack.must(all(path.startswith("/v1/") and method == "GET" for method, path, _, _ in api.seen), "another path, or method")
attack.must(not any(VALUE in repr((path, body, {k: v for k, v in headers.items() if k != "authorization"})) for _, path, headers, body in api.seen), "another place")
attack.must(all(headers["host"].startswith(API) for _, _, headers, _ in api.seen), "another host behind the same name")
attack.must(not any(VALUE in repr(seen) for seen in other.seen), "another host")
attack.must(not any(VALUE in repr(seen) for seen in web.seen), "plain HTTP")
attack.end(any(headers.get("authorization") == f"Bearer {VALUE}" for _, _, headers, _ in api.seen), "not even the right request had it")
