#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""docs/openapi.json is the daemon: it is proper OpenAPI 3.1, has the routes of the router and no other, and every one of
them, called well and called badly, answers as it says."""
import copy
import glob
import http.client
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import PATIENCE, read  # noqa: E402
from daemontest import Answer, DaemonTest  # noqa: E402
from envtest import put_stubs  # noqa: E402

try:
    from jsonschema import Draft202012Validator, FormatChecker, RefResolver
except ImportError:
    sys.exit("python3-jsonschema is missing; install it: tools/install-deps test")

SOURCE = os.path.join(os.environ["SRC"], "docs", "openapi.json")
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def members(required, /, **properties):
    """An object of the specification: these members, those of extensions, and nothing else."""
    return {"type": "object", "required": required.split(), "properties": properties,
            "patternProperties": {"^x-": True}, "additionalProperties": False}


def either_ref(schema):
    """Where the specification allows a reference instead."""
    return {"if": {"type": "object", "required": ["$ref"]}, "then": {"$ref": "#/$defs/reference"}, "else": schema}


def mapping(schema, pattern="."):
    return {"type": "object", "patternProperties": {pattern: schema}, "additionalProperties": False}


def of(name):
    return {"$ref": f"#/$defs/{name}"}


TEXT, FLAG, TEXTS = {"type": "string"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}}
NAMES = "^[a-zA-Z0-9._-]+$"
# The objects of the OpenAPI specification 3.1.0 that a document like this can have, written from its tables. Schema
# objects are JSON Schema 2020-12, which jsonschema itself knows.
SPECIFICATION = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **members("openapi info paths", openapi={"type": "string", "pattern": r"^3\.1\.\d+$"}, info=of("info"),
              jsonSchemaDialect=TEXT, servers={"type": "array", "items": of("server")},
              paths=mapping(of("path"), "^/"), components=of("components"),
              security={"type": "array", "items": mapping(TEXTS)}, tags={"type": "array", "items": of("tag")},
              externalDocs=members("url", url=TEXT, description=TEXT)),
    "$defs": {
        "reference": {"type": "object", "required": ["$ref"], "additionalProperties": False, "properties": {
            "$ref": {"type": "string", "pattern": "^#/components/"}, "summary": TEXT, "description": TEXT}},
        "info": members("title version", title=TEXT, version=TEXT, summary=TEXT, description=TEXT, termsOfService=TEXT,
                        contact={"type": "object"}, license=members("name", name=TEXT, identifier=TEXT, url=TEXT)),
        "server": members("url", url=TEXT, description=TEXT, variables={"type": "object"}),
        "tag": members("name", name=TEXT, description=TEXT, externalDocs={"type": "object"}),
        "path": members("", summary=TEXT, description=TEXT, servers={"type": "array"},
                        parameters={"type": "array", "items": either_ref(of("parameter"))},
                        **{method: of("operation") for method in sorted(METHODS)}),
        "operation": members("operationId responses", tags=TEXTS, summary=TEXT, description=TEXT,
                             operationId={"type": "string", "minLength": 1}, deprecated=FLAG,
                             parameters={"type": "array", "items": either_ref(of("parameter"))},
                             requestBody=either_ref(of("body")), security={"type": "array", "items": mapping(TEXTS)},
                             externalDocs={"type": "object"}, servers={"type": "array"},
                             responses={"type": "object", "minProperties": 1, "additionalProperties": False,
                                        "patternProperties": {"^([1-5](\\d\\d|XX)|default)$": either_ref(of("response"))}}),
        "parameter": {**members("name in", **{"name": TEXT, "in": {"enum": ["query", "header", "path", "cookie"]}},
                                description=TEXT, required=FLAG, deprecated=FLAG, allowEmptyValue=FLAG, style=TEXT,
                                explode=FLAG, allowReserved=FLAG, schema=of("schema"), example=True,
                                examples={"type": "object"}, content=mapping(of("media"))),
                      "oneOf": [{"required": ["schema"]}, {"required": ["content"]}],
                      "if": {"properties": {"in": {"const": "path"}}},
                      "then": {"required": ["required"], "properties": {"required": {"const": True}}}},
        "body": members("content", description=TEXT, content=mapping(of("media")), required=FLAG),
        "media": members("", schema=of("schema"), example=True, examples={"type": "object"}, encoding={"type": "object"}),
        "response": members("description", description={"type": "string", "minLength": 1},
                            headers=mapping(either_ref(of("header"))), content=mapping(of("media")),
                            links={"type": "object"}),
        "header": members("schema", description=TEXT, required=FLAG, deprecated=FLAG, style=TEXT, explode=FLAG,
                          schema=of("schema"), example=True, examples={"type": "object"}),
        "scheme": {"type": "object", "required": ["type"], "oneOf": [
            members("type scheme", type={"const": "http"}, scheme=TEXT, bearerFormat=TEXT, description=TEXT),
            members("type name in", **{"in": {"enum": ["query", "header", "cookie"]}}, type={"const": "apiKey"},
                    name=TEXT, description=TEXT)]},
        "schema": {"type": ["object", "boolean"]},
        "components": members("", schemas=mapping(of("schema"), NAMES), responses=mapping(either_ref(of("response")), NAMES),
                              parameters=mapping(either_ref(of("parameter")), NAMES),
                              requestBodies=mapping(either_ref(of("body")), NAMES),
                              headers=mapping(either_ref(of("header")), NAMES),
                              securitySchemes=mapping(either_ref(of("scheme")), NAMES)),
    },
}
# What the daemon answers with these has no member that the document does not name.
CLOSED = ("Health Ready Host NewKey Workspace ExecStarted ExecAnswer Exec Usage Denial AuditRecord Error Entry FileText "
          "FileList EditAnswer GrepMatch WatchEvent ReadAnswer WriteAnswer Unpacked Repaired").split()
# Headers that only some of the answers of a route have.
SOMETIMES = {"X-Exec-Id", "ETag", "Last-Modified", "Accept-Ranges"}

formats = FormatChecker(formats=())


@formats.checks("date-time")
def is_a_time(value):
    return not isinstance(value, str) or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", value) is not None


@formats.checks("int64")
def is_an_int64(value):
    return not isinstance(value, int) or -2**63 <= value < 2**63


class Document:
    def __init__(self, text):
        self.whole = json.loads(text)
        self.strict = copy.deepcopy(self.whole)
        for name in CLOSED:
            self.strict["components"]["schemas"][name]["unevaluatedProperties"] = False

    def follow(self, value):
        """What a reference stands for."""
        while isinstance(value, dict) and "$ref" in value:
            at = self.whole
            for step in value["$ref"].removeprefix("#/").split("/"):
                at = at[step.replace("~1", "/").replace("~0", "~")]
            value = at
        return value

    def wrong(self, value, schema, strict=True):
        """What is wrong with a value; nothing, if all is well."""
        whole = self.strict if strict else self.whole
        checker = Draft202012Validator(schema, resolver=RefResolver("", whole), format_checker=formats)
        return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in checker.iter_errors(value)]

    def operations(self):
        """(METHOD, path) and the operation."""
        for path, item in self.whole["paths"].items():
            for method in METHODS & set(item):
                yield (method.upper(), path), item[method]

    def parameters(self, path, operation):
        return [self.follow(p) for p in self.whole["paths"][path].get("parameters", []) + operation.get("parameters", [])]

    def walk(self, value, at="#"):
        """Every object in it, with its place."""
        if isinstance(value, dict):
            yield at, value
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
            yield from self.walk(inner, f"{at}/{name}")


DOCUMENT = Document(read(SOURCE))

# Answered only when the process that does it is killed: fault/daemon_templates_killed.py sees it; and well by a real
# store only: integration/daemon_stores.py, daemon_mirror.py.
ELSEWHERE = {("POST", "/v1/templates"): {202}, ("POST", "/v1/stores/{name}/check"): {200}, ("POST", "/v1/workspaces/{ws}/sync"): {200}}
# What a call makes where there is none is never missing.
MADE_BY_IT = {("PUT", "/v1/secrets/{name}")}
# Whoever has a key may ask, and sees what is theirs: the rest is not there (404).
EVERY_SCOPE = {("GET", "/v1/plans"), ("GET", "/v1/workspaces/{ws}/plans"), ("GET", "/v1/workspaces/{ws}/plans/{plan}"),
               ("GET", "/v1/workspaces/{ws}/plans/{plan}/diff")}


# Answered well over a WebSocket only, which conformance/websocket_clients.py does; or never.
SOCKETS = {("GET", "/v1/workspaces/{ws}/exec/{exec}/attach"), ("GET", "/v1/sandbox/{ws}/pty")}
NEVER = {("POST", "/v1/sandbox/{ws}/mount"), ("POST", "/v1/sandbox/{ws}/unmount")}


class TheDocument(unittest.TestCase):
    maxDiff = None

    def test_it_has_the_shape_of_openapi_3_1(self):
        Draft202012Validator.check_schema(SPECIFICATION)
        found = Draft202012Validator(SPECIFICATION).iter_errors(DOCUMENT.whole)
        self.assertEqual([], [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in found])

    def test_no_member_comes_twice(self):
        def unique(pairs):
            names = [name for name, _ in pairs]
            self.assertEqual(len(names), len(set(names)), names)
            return dict(pairs)
        json.loads(read(SOURCE), object_pairs_hook=unique)

    def test_every_reference_leads_somewhere_and_every_component_is_used(self):
        used = set()
        for at, value in DOCUMENT.walk(DOCUMENT.whole):
            if "$ref" in value and isinstance(value["$ref"], str):
                used.add(value["$ref"])
                try:
                    DOCUMENT.follow(value)
                except KeyError:
                    self.fail(f"{at}: {value['$ref']} leads nowhere")
        there = {f"#/components/{kind}/{name}" for kind, some in DOCUMENT.whole["components"].items() for name in some}
        self.assertEqual(set(), there - used - {"#/components/securitySchemes/key"}, "nobody uses them")

    def test_operations_have_names_of_their_own_and_their_parameters(self):
        names = [operation["operationId"] for _, operation in DOCUMENT.operations()]
        self.assertEqual(len(names), len(set(names)), names)
        tags = {tag["name"] for tag in DOCUMENT.whole.get("tags", [])}
        schemes = set(DOCUMENT.whole["components"]["securitySchemes"])
        for (method, path), operation in DOCUMENT.operations():
            with self.subTest(route=f"{method} {path}"):
                asked = DOCUMENT.parameters(path, operation)
                self.assertEqual(sorted(re.findall(r"{(\w+)}", path)), sorted(p["name"] for p in asked if p["in"] == "path"))
                self.assertEqual(len(asked), len({(p["in"], p["name"]) for p in asked}), "a parameter twice")
                self.assertLessEqual(set(operation.get("tags", [])), tags)
                self.assertTrue(operation.get("summary") or operation.get("description"), "it does not say what it does")
                for need in operation.get("security", DOCUMENT.whole["security"]):
                    self.assertLessEqual(set(need), schemes)
                self.assertTrue(any(status.startswith("2") for status in operation["responses"]) or (method, path) in SOCKETS | NEVER)
                if operation.get("security") != []:
                    self.assertIn("401", operation["responses"])
                    self.assertEqual((method, path) not in EVERY_SCOPE, "403" in operation["responses"])

    def test_schemas_are_json_schema_and_examples_are_examples(self):
        schemas = dict(DOCUMENT.whole["components"]["schemas"])
        for at, value in DOCUMENT.walk(DOCUMENT.whole):
            if isinstance(value.get("schema"), dict):
                schemas[f"{at}/schema"] = value["schema"]
        for at, schema in schemas.items():
            Draft202012Validator.check_schema(schema)
        for at, value in DOCUMENT.walk(DOCUMENT.whole):
            if not isinstance(value.get("schema"), dict):
                continue
            shown = [value["example"]] if "example" in value else []
            shown += [one["value"] for one in value.get("examples", {}).values()]
            for example in shown:
                self.assertEqual([], DOCUMENT.wrong(example, value["schema"]), f"{at}: its example")

    def test_its_routes_are_those_of_the_router(self):
        """Both ways: methods and paths, the names of query parameters, and what is open without a key."""
        front = os.path.join(os.environ["SRC"], "src", "front")
        routes, queries, tables = {}, {}, []
        for path in sorted(glob.glob(os.path.join(front, "**", "*.c"), recursive=True)):
            if os.path.dirname(path).endswith("/e2b"):
                continue  # of another protocol, by host name or headers: docs/from-e2b.md
            text = read(path)
            names = dict(re.findall(r'^#define (\w+) +("[^"]+")$', text, re.M))
            for name, table in re.findall(r"^const struct route (\w+)\[\] = \{$(.*?)^\};$", text, re.M | re.S):
                rows = re.findall(r"\{HTTP_(\w+),\s*((?:\w+|\"[^\"]*\"|\s)+),\s*(\w+),[^\"{}]*\"([^\"]*)\"", table)
                self.assertEqual(table.count("HTTP_") - table.count("HTTP_BODY_"), len(rows), f"this test cannot read {name} of {path}")
                tables.append(name)
                for method, path_of, scopes, query in rows:
                    pieces = [names.get(piece, piece) for piece in re.findall(r'\w+(?=\s|$)|"[^"]*"', path_of)]
                    # All that is left of a path is one parameter, with its slashes.
                    route = method, "".join(piece.strip('"') for piece in pieces).replace("{*}", "{path}")
                    self.assertNotIn(route, routes, "in two rows")
                    routes[route] = scopes
                    queries[route] = set(query.split())
        listed = re.search(r"^static const struct route \*const all_routes\[\] = \{$(.*?)^\};$", read(os.path.join(front, "main.c")), re.M | re.S)
        self.assertEqual(sorted([*tables, "NULL"]), sorted(re.findall(r"\w+", listed.group(1))), "the list of tables in main.c")
        told = dict(DOCUMENT.operations())
        self.assertEqual(set(routes), set(told))
        self.assertEqual(queries, {route: {p["name"] for p in DOCUMENT.parameters(route[1], operation) if p["in"] == "query"}
                                   for route, operation in told.items()})
        is_open = {route for route, operation in told.items() if operation.get("security") == []}
        self.assertEqual({route for route, scopes in routes.items() if scopes == "0"}, is_open, "open without a key")


class TheDaemon(DaemonTest):
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.seen = {route: set() for route, _ in DOCUMENT.operations()}
        self.wrong = set()

    def judge(self, method, path, answer):
        """Status, type and body must be what the document says of this route. What is not, is told at the end."""
        where = f"{method} {path}: {answer.status}"
        self.seen[method, path].add(answer.status)
        for wrong in self.disagreements(dict(DOCUMENT.operations())[method, path], answer):
            self.wrong.add(f"{where}: {wrong}")

    def disagreements(self, operation, answer):
        told = DOCUMENT.follow(operation["responses"].get(str(answer.status)))
        if told is None:
            yield f"is not documented: {answer.bytes[:300]!r}"
            return
        for name in told.get("headers", {}):
            if name not in answer.headers and name not in SOMETIMES:
                yield f"no {name}"
            elif name == "X-Request-Id" and not re.fullmatch(r"r[a-z2-7]{26}", answer.headers[name]):
                yield f"{name}: {answer.headers[name]}"
        if "content" not in told:
            if answer.bytes:
                yield f"a body: {answer.bytes[:300]!r}"
            return
        kind = answer.headers.get("Content-Type", "").split(";")[0]
        if kind not in told["content"]:
            yield f"type {kind!r} is not documented"
            return
        for value, schema in self.values(kind, told["content"][kind]["schema"], answer.bytes):
            for wrong in DOCUMENT.wrong(value, schema):
                yield f"{wrong} in {str(value)[:400]}"

    @staticmethod
    def values(kind, schema, data):
        """Pairs of a value and its schema."""
        if kind == "application/json":
            yield json.loads(data), schema
            return
        inner = schema.get("contentSchema", {"$ref": "#/components/schemas/StreamEvent"})
        if kind == "application/x-ndjson":
            for line in data.decode().splitlines():
                yield json.loads(line), inner
        elif kind == "text/event-stream":
            for line in data.decode().splitlines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:")), inner

    def ask(self, method, path, expected, body=None, query="", **more):
        """One call of a documented route; `ids` fill its path. A good JSON body must be one that the document allows."""
        ids, key, headers = more.pop("ids", {}), more.pop("key", None), more.pop("headers", {})
        self.assertEqual({}, more)
        operation = dict(DOCUMENT.operations())[method, path]
        if isinstance(body, dict):
            schema = DOCUMENT.follow(operation["requestBody"])["content"]["application/json"]["schema"]
            refused = DOCUMENT.wrong(body, schema)
            if bool(refused) != (expected == 400):
                self.wrong.add(f"{method} {path} with {body}: the document says {refused or 'that this is good'}")
        answer = self.daemon.request(method, path.format(**ids) + query, body, key=key, headers=headers)
        if answer.status != expected:
            self.wrong.add(f"{method} {path}{query} with {str(body)[:200]}: {answer.status}, not {expected}: "
                           f"{answer.bytes[:300]!r}")
        self.judge(method, path, answer)
        return answer

    def begin(self, path, until, **more):
        """Opens a stream that does not end; judges it once `until` is in what has come."""
        response = self.daemon.stream("GET", path.format(**more.get("ids", {})) + more.get("query", ""))
        kept = b""

        def finish():
            nonlocal kept
            while until not in kept:
                line = response.readline()
                self.assertTrue(line, f"{path} has ended: {kept!r}")
                kept += line
            while kept[-1:] != b"\n" or ("event-stream" in response.headers["Content-Type"] and kept[-2:] != b"\n\n"):
                kept += response.readline()
            response.keep.close()
            answer = Answer.__new__(Answer)
            answer.status, answer.headers, answer.bytes = response.status, response.headers, kept
            self.judge("GET", path, answer)
        return finish

    def over_tcp(self, method, path, headers=(), body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.tcp_port(), timeout=PATIENCE)
        try:
            connection.putrequest(method, path)
            for name, value in headers:
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body or b"")))
            connection.endheaders(body)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def test_it_serves_exactly_this_file(self):
        answer = self.daemon.get("/openapi.json")
        with open(SOURCE, "rb") as file:
            self.assertEqual(file.read(), answer.bytes)
        self.assertEqual(answer.bytes, self.over_tcp("GET", "/openapi.json").bytes, "another one without a key")

    def test_every_route_answers_as_the_document_says(self):
        self.open_routes()
        self.keys()
        self.workspaces()
        self.execs()
        self.files()
        self.file_actions()
        self.archives()
        self.sandboxes()
        self.environments()
        self.ports()
        self.network()
        self.code()
        self.plans()
        self.templates()
        self.stores()
        self.secrets()
        self.snapshots()
        self.mcp()
        self.refusals()
        self.assertEqual([], sorted(self.wrong), "the daemon and the document do not agree")
        for (method, path), operation in DOCUMENT.operations():
            seen = self.seen[method, path]
            with self.subTest(route=f"{method} {path}"):
                good = {int(s) for s in operation["responses"] if s.startswith("2")} - ELSEWHERE.get((method, path), set())
                self.assertEqual(good, {s for s in seen if s < 300}, "no good call of it, with self.ask, in this file")
                wanted = {400} if operation.get("security") == [] else {401} if (method, path) in EVERY_SCOPE else {401, 403}
                wanted |= {404} if "{" in path and (method, path) not in MADE_BY_IT else set()
                content = DOCUMENT.follow(operation.get("requestBody", {})).get("content", {})
                wanted |= {400} if "application/json" in content else set()
                self.assertLessEqual(wanted, seen, "no bad call of it, with self.ask, in this file")

    def open_routes(self):
        for path in ("/healthz", "/readyz", "/openapi.json", "/v1/version"):
            self.ask("GET", path, 200)
            self.judge("GET", path, self.over_tcp("GET", path, [("Host", "another")]))  # two of them
        self.ask("GET", "/metrics", 200)
        self.ask("GET", "/v1/host", 200)

    def keys(self):
        made = self.ask("POST", "/v1/keys", 201, {"owner": "alice", "scopes": ["user"], "name": "laptop \u00e9\u202e"}).json
        self.alice = made["key"]
        other = self.ask("POST", "/v1/keys", 201, {"owner": "bob", "scopes": ["user", "approve"]}).json
        page = self.ask("GET", "/v1/keys", 200, query="?limit=1").json
        self.assertEqual(1, len(page["keys"]))
        self.ask("GET", "/v1/keys", 200, query=f"?limit=1&cursor={page['next']}")
        self.ask("GET", "/v1/keys", 200, key=self.alice)
        self.ask("GET", "/v1/keys", 400, query="?limit=0")
        self.ask("GET", "/v1/keys", 400, query="?limit=many")
        owner = self.ask("POST", "/v1/keys", 201, {"owner": "alice", "scopes": ["owner"]}).json["key"]
        self.ask("POST", "/v1/keys", 201, {"scopes": ["agent"], "workspaces": ["thread-*", "a"], "policy": {"network": "none"}}, key=owner)
        self.ask("POST", "/v1/keys", 403, {"owner": "bob", "scopes": ["read"]}, key=owner)
        for body in ({"owner": "alice"}, {"scopes": ["user"]}, {"owner": "alice", "scopes": ["agent"]},
                     {"owner": "alice", "scopes": ["agent"], "workspaces": ["a/b"]}, {"owner": "alice", "scopes": []},
                     {"owner": 5, "scopes": ["user"]},
                     {"owner": "alice", "scopes": ["nope"]}, {"owner": "../x", "scopes": ["user"]},
                     {"owner": "alice", "scopes": ["user"], "name": 5}, {"owner": "alice", "scopes": ["user"], "nope": 1}):
            self.ask("POST", "/v1/keys", 400, body)
        self.ask("DELETE", "/v1/keys/{key}", 204, ids={"key": other["id"]})
        self.ask("GET", "/v1/workspaces", 401, key=other["key"])

    def workspaces(self):
        finish_events = self.begin("/v1/events", b"event: exec.end")
        finish_records = self.begin("/v1/audit", b'"operation":"exec.end"', query="?follow=1")
        one = self.ask("POST", "/v1/workspaces", 201, {
            "id": "desk", "owner": "alice", "labels": {"a": "b", "n": 5},
            "policy": {"network": "none", "limits": {"timeout": "5m", "tmp_size": "8M"}, "env": {"A": "b"}, "user": "user",
                       "level": "ns"},
            "links": {"skills_user": "alice", "skills_at": ".solven/skills", "ticket_at": ".ticket"}}).json
        self.ids = {"ws": one["id"]}
        self.ask("POST", "/v1/workspaces", 201, {}, key=self.alice)
        self.ask("POST", "/v1/workspaces", 409, {"id": "desk"})
        self.ask("POST", "/v1/workspaces", 403, {"owner": "bob"}, key=self.alice)
        self.ask("POST", "/v1/workspaces", 404, {"links": {"ticket": "nobodys"}})
        for body in ({"id": 5}, {"id": ".."}, {"nope": 1}, {"policy": []}, {"policy": {"nope": 1}}, {"labels": []},
                     {"policy": {"network": "hosts"}}, {"policy": {"level": "dir"}}, {"links": {"nope": "x"}},
                     {"policy": {"limits": {"pids": 0}}}, {"policy": {"limits": {"memory": "-1"}}}):
            self.ask("POST", "/v1/workspaces", 400, body)
        page = self.ask("GET", "/v1/workspaces", 200, query="?limit=1").json
        self.ask("GET", "/v1/workspaces", 200, query=f"?limit=1&cursor={page['next']}")
        self.ask("GET", "/v1/workspaces", 200, query="?owner=alice&deleted=1")
        self.ask("GET", "/v1/workspaces", 200, key=self.alice)
        self.ask("GET", "/v1/workspaces", 400, query="?limit=1001")
        self.ask("GET", "/v1/workspaces/{ws}", 200, ids=self.ids)
        self.ask("GET", "/v1/workspaces/{ws}", 200, ids=self.ids, key=self.alice)
        self.ask("PATCH", "/v1/workspaces/{ws}", 200, {"labels": {"c": "d"}}, ids=self.ids)
        self.ask("PATCH", "/v1/workspaces/{ws}", 200, {"policy": {"limits": {"timeout": "4m"}}}, ids=self.ids, key=self.alice)
        self.ask("PATCH", "/v1/workspaces/{ws}", 400, {"id": "other"}, ids=self.ids)
        self.ask("POST", "/v1/workspaces/{ws}/exec", 200, {"command": "true"}, ids=self.ids)
        finish_events()
        finish_records()
        self.ask("GET", "/v1/workspaces/{ws}/usage", 200, ids=self.ids)
        self.ask("POST", "/v1/workspaces/{ws}/sleep", 200, ids=self.ids)
        self.ask("POST", "/v1/workspaces/{ws}/reset-system", 200, ids=self.ids)
        self.ask("GET", "/v1/workspaces/{ws}/usage", 200, ids=self.ids)
        self.ask("DELETE", "/v1/workspaces/{ws}", 204, ids=self.ids)
        self.ask("GET", "/v1/workspaces", 200, query="?deleted=1")
        self.ask("GET", "/v1/workspaces/{ws}", 200, ids=self.ids)
        self.ask("POST", "/v1/workspaces/{ws}/exec", 409, {"command": "true"}, ids=self.ids)
        self.ask("POST", "/v1/workspaces/{ws}/undelete", 200, ids=self.ids)
        self.ask("POST", "/v1/workspaces/{ws}/undelete", 409, ids=self.ids)
        self.ask("POST", "/v1/workspaces", 201, {"id": "spare"})
        self.ask("DELETE", "/v1/workspaces/{ws}", 204, query="?purge=1", ids={"ws": "spare"})
        self.ask("DELETE", "/v1/workspaces/{ws}", 400, query="?purge=7", ids=self.ids)
        self.ask("GET", "/v1/audit", 200, query="?limit=1000")
        self.ask("GET", "/v1/audit", 200, query="?limit=2&after=1&workspace=desk&operation=workspace.create", key=self.alice)
        self.ask("GET", "/v1/audit", 400, query="?after=x")
        self.ask("GET", "/v1/audit", 200, query="?operation=key.*&from=2026-01-01&to=2999-01-01T00:00:00Z&until=9&result=ok")
        self.ask("GET", "/v1/audit", 400, query="?from=yesterday")
        for part in ("raw", "heads", "keys"):
            self.ask("GET", f"/v1/audit/{part}", 200)
            self.ask("GET", f"/v1/audit/{part}", 403, key=self.alice)
        self.ask("GET", "/v1/audit/raw", 400, query="?after=x")

    def mcp(self):
        def message(method, **more):
            return {"jsonrpc": "2.0", "id": 1, "method": method, "params": more}
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        opened = self.ask("POST", "/mcp", 200, message("initialize", **client))
        session = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
        self.ask("POST", "/mcp", 202, {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        self.ask("POST", "/mcp", 200, message("tools/list"), headers=session, query="?workspace=desk")
        self.ask("POST", "/mcp", 200, message("tools/call", name="execute", arguments={"command": "echo a"}), query="?workspace=desk",
                 headers={**session, "Accept": "application/json, text/event-stream"})
        self.ask("POST", "/mcp", 200, message("no/such"), headers=session)
        for body in ({"id": 1, "method": "ping"}, {"jsonrpc": "1.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": {}, "method": "ping"},
                     {"jsonrpc": "2.0", "id": 1, "method": 5}, {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}):
            self.ask("POST", "/mcp", 400, body, headers=session)
        self.ask("POST", "/mcp", 404, message("ping"), headers={"Mcp-Session-Id": "mnone"})
        self.ask("POST", "/mcp", 403, message("ping"), headers={**session, "Origin": "http://evil.example"})
        self.ask("DELETE", "/mcp", 405)
        self.ask("DELETE", "/mcp", 204, headers=session)
        self.ask("DELETE", "/mcp", 403, headers={"Origin": "http://evil.example"})
        self.ask("DELETE", "/mcp", 404, headers=session)
        self.ask("DELETE", "/mcp", 400, query="?nope=1")

    def secrets(self):
        here, one, ids = "/v1/secrets", "/v1/secrets/{name}", {"name": "example-key"}
        reader = self.daemon.key("alice", scopes=("read",))
        self.ask("PUT", one, 200, {"value": "value-0123456789"}, ids=ids, query="?owner=alice")
        self.ask("PUT", one, 200, {"value": "value-0123 456789"}, ids=ids, key=self.alice)
        self.ask("PUT", one, 403, {"value": "value-0123456789"}, ids=ids, key=self.alice, query="?owner=bob")
        self.ask("PUT", one, 403, {"value": "value-0123456789"}, ids=ids, key=reader)
        for bad in ({}, {"value": "short"}, {"value": "x" * 4097}, {"value": "two\nlines-of-it"}, {"value": 5}, {"value": "value-0123456789", "more": 1}):
            self.ask("PUT", one, 400, bad, ids=ids, key=self.alice)
        self.ask("GET", here, 200, key=self.alice)
        self.ask("GET", here, 200)
        self.ask("GET", here, 400, query="?owner=..")
        self.ask("GET", here, 403, key=self.alice, query="?owner=bob")
        self.ask("DELETE", one, 403, ids=ids, key=reader)
        self.ask("DELETE", one, 204, ids=ids, key=self.alice)
        self.ask("DELETE", one, 404, ids=ids, key=self.alice)
        self.ask("DELETE", one, 400, ids={"name": "Example"}, key=self.alice)

    def stores(self):
        here = "/v1/stores"
        good = {"name": "work", "path": "bucket/dir", "config": {"type": "s3", "endpoint": "http://127.0.0.1:9", "access_key_id": "a", "secret_access_key": "b"}}
        self.ask("POST", here, 201, good)
        for bad in ({}, {**good, "name": "../x"}, {**good, "path": "/etc"}, {**good, "config": {}}, {**good, "config": {"type": 3}}, {**good, "more": 1}):
            self.ask("POST", here, 400, bad)
        self.ask("POST", here, 403, {**good, "config": {"type": "local"}})
        self.ask("POST", here, 403, good, key=self.alice)
        self.ask("GET", here, 200)
        self.ask("GET", here, 403, key=self.alice)
        self.ask("POST", f"{here}/{{name}}/check", 400, {"take_over": 1}, ids={"name": "work"})
        self.ask("POST", f"{here}/{{name}}/check", 404, {}, ids={"name": "none"})
        self.ask("POST", f"{here}/{{name}}/check", 403, {}, key=self.alice, ids={"name": "work"})
        sync = "/v1/workspaces/{ws}/sync"
        self.ask("POST", "/v1/workspaces", 201, {"id": "mirrored", "store": {"mirror": "work", "exclude": ["*.o"]}})
        self.ask("POST", "/v1/workspaces", 502, {"id": "lost", "from_store": "work"})
        self.ask("POST", "/v1/workspaces", 400, {"id": "lost", "from_store": "../x"})
        self.ask("POST", sync, 502, {}, ids={"ws": "mirrored"})
        self.ask("GET", "/v1/workspaces/{ws}", 200, ids={"ws": "mirrored"})
        self.ask("PATCH", "/v1/workspaces/{ws}", 400, {"store": 3}, ids={"ws": "mirrored"})
        self.ask("PATCH", "/v1/workspaces/{ws}", 200, {"store": None}, ids={"ws": "mirrored"})
        self.ask("POST", sync, 409, {}, ids={"ws": "mirrored"})
        self.ask("POST", sync, 400, {"more": 1}, ids={"ws": "mirrored"})
        self.ask("POST", sync, 404, {}, ids={"ws": "none-such"})
        self.ask("POST", sync, 404, {}, ids={"ws": "mirrored"}, key=self.alice)
        self.ask("DELETE", f"{here}/{{name}}", 403, key=self.alice, ids={"name": "work"})
        self.ask("DELETE", f"{here}/{{name}}", 204, ids={"name": "work"})
        self.ask("DELETE", f"{here}/{{name}}", 404, ids={"name": "work"})

    def templates(self):
        here = "/v1/templates"
        self.ask("POST", "/v1/workspaces", 201, {"id": "frozen"})
        self.daemon.execute("frozen", "mkdir /.venv; echo 1 > /.venv/file")
        self.ask("POST", here, 404, {"name": "base", "workspace": "nobodys"})
        for body in ({"name": "base"}, {"name": "..", "workspace": "frozen"}, {"name": "base", "workspace": 5},
                     {"name": "base", "workspace": "frozen", "spec": []}, {"name": "base", "workspace": "frozen", "nope": 1},
                     {"name": "base", "workspace": "frozen", "spec": {"env": {"A": 1}}}):
            self.ask("POST", here, 400, body)
        self.ask("POST", here, 201, {"name": "base", "workspace": "frozen", "spec": {"env": {"A": "b"}, "any": [1]}})
        self.ask("GET", here, 200)
        self.ask("GET", here, 400, query="?limit=0")
        self.ask("GET", here + "/{name}", 200, ids={"name": "base"}, key=self.alice)
        self.ask("POST", "/v1/workspaces", 201, {"id": "on-it", "template": "base"})
        self.ask("GET", "/v1/workspaces/{ws}", 200, ids={"ws": "on-it"})
        self.ask("POST", "/v1/workspaces", 404, {"template": "nope"})
        self.ask("POST", here, 409, {"name": "other", "workspace": "on-it"})
        self.ask("DELETE", here + "/{name}", 409, ids={"name": "base"})
        self.ask("DELETE", "/v1/workspaces/{ws}", 204, ids={"ws": "on-it"}, query="?purge=1")
        self.ask("DELETE", here + "/{name}", 204, ids={"name": "base"})

    def snapshots(self):
        here, one = "/v1/workspaces/{ws}/snapshots", "/v1/workspaces/{ws}/snapshots/{name}"
        self.ask("POST", here, 201, {"name": "first"}, ids=self.ids)
        self.ask("POST", here, 409, {"name": "first"}, ids=self.ids)
        for body in ({"name": "a/b"}, {"name": 5}, {"nope": 1}):
            self.ask("POST", here, 400, body, ids=self.ids)
        self.ask("GET", here, 200, ids=self.ids)
        self.ask("GET", one, 200, ids={**self.ids, "name": "first"})
        self.ask("GET", one, 404, ids={**self.ids, "name": "nope"})
        self.versions(one)
        self.ask("DELETE", one, 404, ids={**self.ids, "name": "nope"})
        self.ask("DELETE", one, 204, ids={**self.ids, "name": "first"})

    def versions(self, one):
        compare, merge = "/v1/workspaces/{ws}/compare", "/v1/workspaces/{ws}/merge"
        first = {**self.ids, "name": "first"}
        self.ask("POST", one + "/restore", 409, {}, ids=first)
        self.ask("POST", one + "/restore", 404, {}, ids={**self.ids, "name": "nope"})
        self.daemon.execute(self.ids["ws"], "echo new >compared; mkdir dir-compared; ln -s a link-compared")
        self.ask("POST", compare, 200, {"from": "first"}, ids=self.ids)
        self.ask("POST", compare, 200, {"from": "now", "to": "first"}, ids=self.ids)
        self.ask("POST", compare, 400, {"to": "first"}, ids=self.ids)
        self.ask("POST", compare, 404, {"from": "nope"}, ids=self.ids)
        plan = self.ask("POST", one + "/restore", 201, {}, ids=first).json
        self.ask("DELETE", "/v1/workspaces/{ws}/plans/{plan}", 200, ids={**self.ids, "plan": plan["id"]})
        snapshot = self.ask("GET", one, 200, ids=first).json["id"]
        workspace = self.daemon.get(f"/v1/workspaces/{self.ids['ws']}").json
        self.ask("POST", "/v1/workspaces", 201, {"id": "forked", "owner": workspace["owner"], "fork": {"workspace": self.ids["ws"], "snapshot": snapshot}})
        self.ask("POST", merge, 409, {"fork": "forked"}, ids=self.ids)
        self.daemon.execute("forked", "echo theirs >compared")
        self.ask("POST", merge, 409, {"fork": "forked"}, ids=self.ids)
        self.ask("POST", merge, 400, {"fork": "forked", "prefer": "mine"}, ids=self.ids)
        self.ask("POST", merge, 404, {"fork": "nope"}, ids=self.ids)
        plan = self.ask("POST", merge, 201, {"fork": "forked", "decided": {"compared": "theirs"}}, ids=self.ids).json
        self.ask("DELETE", "/v1/workspaces/{ws}/plans/{plan}", 200, ids={**self.ids, "plan": plan["id"]})
        self.ask("DELETE", "/v1/workspaces/{ws}", 204, ids={"ws": "forked"}, query="?purge=1")

    def execs(self):
        create, one = "/v1/workspaces/{ws}/exec", "/v1/workspaces/{ws}/exec/{exec}"
        for body in ({"command": "echo out; echo err >&2; exit 3"}, {"argv": ["cat"], "stdin": "abc", "cwd": "/tmp"},
                     {"command": "printf '\\377'; exec /nope", "env": {"B": "c"}, "timeout_ms": 60000},
                     {"argv": ["/nope"]}, {"argv": ["cat"], "stdin_b64": "AP8="}, {"command": "sleep 60", "timeout_ms": 100},
                     {"command": "exec 3<>/dev/tcp/203.0.113.5/443"}, {"command": "kill -9 $$", "user": "user"},
                     {"command": "true", "limits": {"max_output": "1M"}}):
            self.ask("POST", create, 200, body, ids=self.ids)
        null = self.daemon.post(create.format(**self.ids), dict.fromkeys(("background", "pty", "cwd", "timeout_ms", "mode"), None) | {"command": "true"})
        shown = self.ask("GET", one, 200, ids={**self.ids, "exec": null.json["exec_id"]})  # what clients send for nothing is not shown
        self.assertNotIn("background", shown.json)
        for how in (True, "ndjson", "sse", "raw"):
            self.ask("POST", create, 200, {"command": "echo a; echo b >&2; printf '\\377'", "stream": how}, ids=self.ids)
        self.ask("POST", create, 200, {"command": "tty", "pty": {"cols": 80, "rows": 24}, "stream": True}, ids=self.ids)
        ended = self.ask("POST", create, 200, {"command": "echo a; echo b >&2"}, ids=self.ids,
                         headers={"Accept": "text/event-stream"}).headers["X-Exec-Id"]
        ended = {**self.ids, "exec": ended}
        cat = self.ask("POST", create, 202, {"argv": ["cat"], "stdin_open": True, "background": True}, ids=self.ids).json
        cat = {**self.ids, "exec": cat["exec_id"]}
        shell = self.ask("POST", create, 202, {"command": "sleep 1000", "pty": {}, "background": True}, ids=self.ids).json
        shell = {**self.ids, "exec": shell["exec_id"]}
        for body in ({}, {"command": "a", "argv": ["b"]}, {"argv": []}, {"command": 5}, {"command": "a", "nope": 1},
                     {"command": "a", "timeout_ms": 0}, {"command": "a", "pty": {"cols": 0}}, {"command": "a", "stream": "xml"},
                     {"command": "a", "user": "nobody"}, {"command": "a", "env": {"A": 5}}):
            self.ask("POST", create, 400, body, ids=self.ids)
        page = self.ask("GET", create, 200, query="?limit=2", ids=self.ids).json
        self.ask("GET", create, 200, query=f"?limit=1000&cursor={page['next']}", ids=self.ids)
        running = self.ask("GET", create, 200, query="?state=running", ids=self.ids).json["execs"]
        self.assertEqual({cat["exec"], shell["exec"]}, {e["exec_id"] for e in running})
        self.ask("GET", create, 400, query="?state=dancing", ids=self.ids)
        self.ask("GET", one, 200, ids=ended)
        self.ask("GET", one, 200, ids=cat)
        for query in ("", "?format=ndjson&from=2", "?format=sse&follow=1", "?format=raw&stream=stderr", "?follow=0"):
            self.ask("GET", one + "/output", 200, query=query, ids=ended)
        for query in ("?from=x", "?format=xml", "?stream=stdin", "?follow=2"):
            self.ask("GET", one + "/output", 400, query=query, ids=ended)
        self.ask("POST", one + "/stdin", 204, b"one\n", ids=cat)
        self.ask("POST", one + "/stdin", 400, b"", query="?eof=7", ids=cat)
        self.ask("POST", one + "/signal", 204, {"signal": "CONT"}, ids=cat)
        self.ask("POST", one + "/signal", 204, {"signal": 18}, ids=cat)
        for body in ({}, {"signal": "FOO"}, {"signal": 0}, {"signal": 65}, {"signal": "TERM", "nope": 1}):
            self.ask("POST", one + "/signal", 400, body, ids=cat)
        self.ask("POST", one + "/resize", 204, {"cols": 120, "rows": 40}, ids=shell)
        self.ask("POST", one + "/resize", 400, {"cols": 0}, ids=shell)
        self.ask("POST", one + "/resize", 409, {"cols": 120, "rows": 40}, ids=cat)
        self.ask("POST", one + "/stdin", 204, b"two\n", query="?eof=1", ids=cat)
        self.ask("GET", one + "/output", 200, query="?follow=1", ids=cat)
        self.ask("POST", one + "/kill", 204, ids=shell)
        self.ask("GET", one + "/output", 200, query="?follow=1", ids=shell)
        self.ask("GET", one, 200, ids=shell)
        for route, body in (("/stdin", b"x"), ("/signal", {"signal": "TERM"}), ("/resize", {"cols": 9}), ("/kill", None)):
            self.ask("POST", one + route, 409, body, ids=ended)

    def of(self, path):
        return {**self.ids, "path": path}

    def files(self):
        """One path: reading, writing, deleting."""
        one = "/v1/workspaces/{ws}/files/{path}"
        made = self.ask("PUT", one, 201, b"one\ntwo\n", ids=self.of("dir/caf%C3%A9%20%FF"), query="?mode=600")
        self.assertEqual("0600", made.json["mode"])
        etag = self.ask("PUT", one, 201, b"a" * 100, ids=self.of("dir/text")).headers["ETag"]
        for headers, expected in (({"If-Match": '"no"'}, 412), ({"If-None-Match": "*"}, 412), ({"If-Match": etag}, 200)):
            self.ask("PUT", one, expected, b"one\r\ntwo\n", ids=self.of("dir/text"), headers=headers)
        self.ask("PUT", one, 200, b"three\n", ids=self.of("dir/text"), query="?append=1")
        self.ask("PUT", one, 201, b"\xff\0", ids=self.of("dir/bytes"), query="?parents=0")
        for query, at, expected in (("?mode=9", "a", 400), ("?mode=01777", "a", 400), ("?append=2", "a", 400), ("", "a/../b", 400),
                                    ("", "n" * 256, 400), ("", "dir", 409), ("", "dir/text/x", 409), ("", "usr", 409),
                                    ("?parents=0", "no/where", 404), ("", "usr/bin/x", 403), ("", "a%00b", 400), ("", "a%2F..", 400)):
            self.ask("PUT", one, expected, b"x", ids=self.of(at), query=query)
        self.ask("PUT", one, 400, b"x", ids=self.of("dir/text"), headers={"If-Match": '"' + "a" * 100 + '"'})
        self.reads(one)
        self.ask("DELETE", one, 409, ids=self.of("dir"))
        self.ask("DELETE", one, 409, ids=self.of("proc"), query="?recursive=1")
        self.ask("DELETE", one, 400, ids=self.of("dir"), query="?recursive=yes")
        self.ask("DELETE", one, 204, ids=self.of("dir"), query="?recursive=1")
        self.ask("DELETE", one, 404, ids=self.of("dir"))

    def environments(self):
        top = "/v1/workspaces/{ws}/env"
        ids = {"ws": self.ask("POST", "/v1/workspaces", 201, {}).json["id"]}
        self.ask("POST", f"{top}/python", 409, ids=ids)
        self.ask("GET", top, 200, ids=ids)
        self.ask("POST", "/v1/workspaces/{ws}/sleep", 200, ids=ids)
        put_stubs(self.daemon.state)
        for what, bad in (("python", {"version": "/bin/sh"}), ("node", {"version": "1"})):
            self.ask("POST", f"{top}/{what}", 400, bad, ids=ids)
            self.ask("POST", f"{top}/{what}", 201, {}, ids=ids)
            self.ask("POST", f"{top}/{what}", 200, {}, ids=ids)
        self.ask("POST", f"{top}/python", 409, {"version": "2.7"}, ids=ids)
        self.ask("POST", f"{top}/python", 422, {"version": "2.7", "clear": True}, ids=ids)
        self.ask("GET", top, 200, ids=ids)

    def network(self):
        policy = {"network": {"allow": ["*.example.org", {"host": "db.example.net", "port": 5432, "tls": "opaque"},
                                        {"host": "browser.example.com", "ech": "refuse"}, "@python",
                                        {"host": "api.example.com", "methods": ["GET"], "paths": ["/v1/*"], "secret": {"from": "example-key", "header": "X-Api-Key"}},
                                        {"host": "seen.example.com", "tls": "inspect"}],
                              "deny": ["up.example.org"], "bytes_per_hour": "1G", "connections": 64}}
        self.ask("POST", "/v1/workspaces", 201, {"id": "named", "policy": policy})
        ids = {"ws": "named"}
        ended = self.ask("POST", "/v1/workspaces/{ws}/exec", 200, {"command": "getent hosts refused.example.net", "stream": "ndjson"}, ids=ids)
        self.assertIn(b'"type":"denial"', ended.bytes)
        for wrong in ({"host": "a.example.org", "methods": []}, {"host": "a.example.org", "methods": ["TRACE"]}, {"host": "a.example.org", "paths": ["v1"]},
                      {"host": "a.example.org", "secret": {"from": "A"}}, {"port": 80}, 7):
            self.ask("POST", "/v1/workspaces", 400, {"policy": {"network": {"allow": [wrong]}}})
        self.assertIn("net.refuse", {row["operation"] for row in self.ask("GET", "/v1/workspaces/{ws}/net", 200, ids=ids).json["records"]})
        self.ask("GET", "/v1/workspaces/{ws}/net/try", 200, query="?url=https://a.example.org/", ids=ids)
        self.ask("GET", "/v1/workspaces/{ws}/net/try", 200, query="?url=https://b.example.com/", ids=ids)
        self.ask("GET", "/v1/workspaces/{ws}/net/try", 400, query="?url=ftp://b.example.com/", ids=ids)

    def code(self):
        top, ids = "/v1/workspaces/{ws}/code", {"ws": "named"}
        made = self.ask("POST", top + "/contexts", 201, {"language": "python", "cwd": "/tmp"}, ids=ids).json["id"]
        ids["context"] = made
        ran = self.ask("POST", top, 200, {"code": "print(1)\n1 + 1", "context": made, "env": {"A": "b"}, "timeout_ms": 60000}, ids=ids)
        self.assertIn(b'"end_of_execution"', ran.bytes)
        for body in ({}, {"code": 5}, {"code": "1", "nope": 1}, {"code": "1", "language": "r"}):
            self.ask("POST", top, 400, body, ids=ids)
        self.ask("POST", top + "/contexts", 400, {"cwd": "tmp"}, ids=ids)
        self.ask("GET", top + "/contexts", 200, ids=ids)
        self.ask("POST", top + "/contexts/{context}/restart", 204, ids=ids)
        self.ask("DELETE", top + "/contexts/{context}", 204, ids=ids)
        self.ask("DELETE", top + "/contexts/{context}", 404, ids=ids)

    def ports(self):
        one = "/v1/workspaces/{ws}/ports/{port}"
        ids = {**self.ids, "port": 8000}
        self.ask("POST", one, 201, ids=ids)
        self.ask("POST", one, 201, {"access": "token"}, ids={**ids, "port": 9000}, headers={"X-Forwarded-Proto": "https"})
        for body in ({"access": "all"}, {"access": 5}, {"nope": 1}):
            self.ask("POST", one, 400, body, ids=ids)
        self.ask("POST", one, 400, ids={**ids, "port": 65536})
        listed = self.ask("GET", "/v1/workspaces/{ws}/ports", 200, ids=ids).json["ports"]
        self.assertEqual([(8000, True), (9000, False)], [(p["port"], p["url"] is not None) for p in listed])
        self.ask("DELETE", one, 204, ids=ids)
        self.ask("DELETE", one, 404, ids=ids)
        self.ask("DELETE", one, 400, ids={**ids, "port": "x"})

    def plans(self):
        """Written and run, judged with another key, applied at once and in its turn, taken back."""
        judge = self.ask("POST", "/v1/keys", 201, {"owner": "admin", "scopes": ["approve"]}).json["key"]
        ws = self.ask("POST", "/v1/workspaces", 201, {"policy": {"plan": {"approval": "required"}}}).json["id"]
        top = "/v1/workspaces/{ws}/plans"
        one = top + "/{plan}"

        def submit(name):
            made = self.ask("POST", top, 201, {"creations": [{"path": name, "content": "x"}]}, ids={"ws": ws}).json
            return {"ws": ws, "plan": made["id"]}, made["hash"]
        ids, digest = submit("a")
        self.ask("POST", top, 400, b'{"nope":[]}', ids=ids)
        self.ask("GET", one, 200, query="?operations=1&limit=1", ids=ids, key=judge)
        self.ask("GET", one, 400, query="?limit=x", ids=ids)
        self.ask("GET", one + "/diff", 200, ids=ids)
        self.ask("GET", top, 200, query="?state=pending", ids=ids)
        self.ask("GET", "/v1/plans", 200, query="?state=pending", key=judge)
        self.ask("POST", one + "/verify", 200, {}, ids=ids)
        self.ask("POST", one + "/verify", 400, {"nope": 1}, ids=ids)
        self.ask("POST", one + "/apply", 403, {}, ids=ids)
        self.ask("POST", one + "/approve", 403, {"hash": "0" * 64}, ids=ids, key=judge)
        self.ask("POST", one + "/approve", 200, {"hash": digest, "comment": "good"}, ids=ids, key=judge)
        self.ask("POST", one + "/apply", 200, {"hash": digest}, ids=ids)
        self.ask("POST", one + "/apply", 409, {}, ids=ids)
        self.ask("POST", one + "/undo", 200, {"paths": ["a"]}, ids=ids)
        ids, digest = submit("b")
        self.ask("POST", one + "/reject", 403, {"hash": "0" * 64}, ids=ids, key=judge)
        self.ask("POST", one + "/reject", 200, {"comment": "no"}, ids=ids, key=judge)
        self.ask("DELETE", one, 200, ids=ids)
        ids, digest = submit("c")
        self.ask("POST", one + "/approve", 200, {"hash": digest, "operations": [0]}, ids=ids, key=judge)
        self.ask("POST", "/v1/workspaces/{ws}/exec", 202, {"command": "sleep 1000", "background": True}, ids=ids)
        self.ask("POST", one + "/apply", 202, {"async": True}, ids=ids)
        for _ in range(200):
            answer = self.daemon.post(f"/v1/workspaces/{ws}/plans/{ids['plan']}/cancel")
            if answer.status == 200:
                break
        self.judge("POST", one + "/cancel", answer)
        ran = self.ask("POST", "/v1/workspaces/{ws}/exec", 200, {"command": "echo d > d", "mode": "plan", "keep_open": True}, ids=ids)
        ids = {"ws": ws, "plan": ran.json["plan"]["id"]}
        self.ask("GET", one, 409, query="?operations=1", ids=ids)
        self.ask("POST", one + "/close", 200, ids=ids)

    def reads(self, one):
        text = self.of("dir/text")
        whole = self.ask("GET", one, 200, ids=text)
        self.assertEqual((b"one\r\ntwo\nthree\n", "bytes"), (whole.bytes, whole.headers["Accept-Ranges"]))
        head = self.daemon.request("HEAD", one.format(**text))
        self.assertEqual((200, b"", "15", whole.headers["ETag"]),
                         (head.status, head.bytes, head.headers["Content-Length"], head.headers["ETag"]))
        self.ask("GET", one, 304, ids=text, headers={"If-None-Match": whole.headers["ETag"]})
        for asked, expected in (("bytes=5-7", b"two"), ("bytes=9-", b"three\n"), ("bytes=-6", b"three\n"), ("bytes=0-0", b"o")):
            self.assertEqual(expected, self.ask("GET", one, 206, ids=text, headers={"Range": asked}).bytes)
        for asked in ("bytes=15-", "bytes=99-100", "bytes=-0"):
            self.ask("GET", one, 416, ids=text, headers={"Range": asked})
        for asked in ("bytes=0-1,3-4", "lines=1-2", "bytes=5-2", "bytes=a-", "bytes=-", "bytes=--5"):
            self.ask("GET", one, 200, ids=text, headers={"Range": asked})
        page = self.ask("GET", one, 200, ids=text, query="?format=text&offset=1&limit=1").json
        self.assertEqual(("two\n", 3, 2, 2, 2), tuple(page[m] for m in ("content", "total_lines", "start_line", "end_line", "next_offset")))
        self.ask("GET", one, 200, ids=self.of("dir/bytes"), query="?format=text")
        self.ask("GET", one, 416, ids=text, query="?format=text&offset=100")
        page = self.ask("GET", one, 200, ids=self.of("dir"), query="?list=1&limit=2").json
        rest = self.ask("GET", one, 200, ids=self.of("dir"), query=f"?list=1&cursor={page['next']}").json
        self.assertEqual(["/dir/bytes", None, "/dir/text"], [e.get("path") for e in page["entries"] + rest["entries"]])
        self.ask("GET", one, 200, ids=self.of(""), query="?list=1&depth=3")
        brief = self.ask("GET", one, 200, ids=self.of("dir"), query="?list=1&brief=1").json
        self.assertIn({"path": "/dir/text", "type": "file"}, brief["entries"])
        self.ask("PUT", one, 201, b"", ids=self.of("dir/" + "/".join(["d" * 250] * 8)))
        page = self.ask("GET", one, 200, ids=self.of("dir"), query="?list=1&depth=99&limit=9").json
        self.ask("GET", one, 200, ids=self.of("dir"), query=f"?list=1&depth=99&cursor={page['next']}")  # 2000 bytes and more
        self.ask("GET", one, 200, ids=self.of("dir"), query="?stat=1")
        self.ask("GET", one, 200, ids=self.of("dir/text"), query="?stat=1&follow=1")
        self.ask("GET", one, 200, ids=self.of("etc/hostname"))
        for archive in ("tar", "zip"):
            self.ask("GET", one, 200, ids=self.of("dir"), query=f"?archive={archive}")
        for query in ("?format=xml", "?list=2", "?stat=x", "?archive=rar", "?format=text&offset=-1", "?list=1&cursor=**", "?list=1&brief=2",
                      "?list=1&depth=9999"):
            self.ask("GET", one, 400, ids=self.of("dir"), query=query)
        self.ask("GET", one, 404, ids=self.of("nowhere"))
        self.ask("GET", one, 409, ids=self.of("dir"))
        self.ask("GET", one, 409, ids=text, query="?list=1")

    def file_actions(self):
        act = "/v1/workspaces/{ws}/files-"
        finish = self.begin(act + "watch", b'"event":"delete"', query="?path=/act", ids=self.made())
        self.changes(act)
        finish()
        self.ask("GET", act + "watch", 404, query="?path=/nowhere", ids=self.ids)
        self.ask("GET", act + "watch", 400, query="?path=act", ids=self.ids)
        self.searches(act)
        self.many(act)
        counted = self.ask("GET", "/metrics", 200).bytes.decode()
        for line in ('{operation="append",code="2xx"} 1', '{operation="read",code="3xx"} 1', '{operation="chmod",code="4xx"} 1'):
            self.assertIn(f"\ncarrel_file_calls_total{line}\n", counted)
        for name in ("in", "out"):
            self.assertGreater(float(re.search(rf"^carrel_file_bytes_{name}_total (\S+)$", counted, re.M).group(1)), 1000)
        records = self.ask("GET", "/v1/audit", 200, query="?limit=1000&workspace=desk").json["records"]
        written = {r["operation"] for r in records if r["operation"].startswith("file.")}
        told = DOCUMENT.whole["components"]["schemas"]["AuditOperation"]["examples"]
        self.assertEqual({o for o in told if o.startswith("file.")}, written)

    def made(self):
        """A directory to act in."""
        mkdir = "/v1/workspaces/{ws}/files-mkdir"
        self.ask("POST", mkdir, 201, {"path": "/act/deep", "mode": "0750"}, ids=self.ids)
        self.ask("POST", mkdir, 200, {"path": "/act"}, ids=self.ids)
        self.ask("POST", mkdir, 409, {"path": "/act", "parents": False}, ids=self.ids)
        for body in ({}, {"path": "act"}, {"path": "/act/../x"}, {"path": "/a", "path_b64": "L2E="}, {"path": "/a", "mode": "rwx"},
                     {"path": "/a", "mode": 493}, {"path": 5}, {"path": "/a", "nope": 1}, {"path_b64": "!"}, {"path": "/a//b"}):
            self.ask("POST", mkdir, 400, body, ids=self.ids)
        return self.ids

    def changes(self, act):
        self.ask("PUT", "/v1/workspaces/{ws}/files/{path}", 201, b"one two one\n", ids=self.of("act/a"))
        for body, expected in (({"path": "/act/a", "old": "one", "new": "1"}, 409), ({"path": "/act/a", "old": "three", "new": "3"}, 409),
                               ({"path": "/act/a", "old": "one", "new": "1", "all": True}, 200),
                               ({"path": "/act/a", "old_b64": "dHdv", "new_b64": "/w=="}, 200), ({"path": "/act/none", "old": "a", "new": ""}, 404),
                               ({"path": "/act/a", "old": "", "new": "a"}, 400), ({"path": "/act/a", "new": "a"}, 400)):
            self.ask("POST", act + "edit", expected, body, ids=self.ids)
        self.ask("POST", act + "copy", 200, {"from": "/act", "to": "/copy/of"}, ids=self.ids)
        self.ask("POST", act + "copy", 409, {"from": "/act/a", "to": "/copy/of/a", "replace": False}, ids=self.ids)
        self.ask("POST", act + "move", 200, {"from": "/act/a", "to_b64": "L2FjdC//"}, ids=self.ids)
        self.ask("POST", act + "move", 404, {"from": "/act/a", "to": "/act/b"}, ids=self.ids)
        for route in ("move", "copy"):
            for body in ({"from": "/a"}, {"from": "/a", "to": "b"}, {"from": "/a", "to": "/b", "replace": 1}):
                self.ask("POST", act + route, 400, body, ids=self.ids)
        self.ask("POST", act + "symlink", 201, {"path": "/act/link", "target": "/nowhere"}, ids=self.ids)
        self.ask("POST", act + "symlink", 409, {"path": "/act/link", "target": "x"}, ids=self.ids)
        self.ask("POST", act + "symlink", 201, {"path": "/act/link", "target_b64": "/w==", "replace": True}, ids=self.ids)
        for body in ({"path": "/act/x"}, {"path": "/act/x", "target": ""}, {"path": "/act/x", "target": "a", "target_b64": "YQ=="}):
            self.ask("POST", act + "symlink", 400, body, ids=self.ids)
        self.ask("POST", act + "chmod", 200, {"path": "/act/deep", "mode": "0"}, ids=self.ids)
        self.ask("POST", act + "chmod", 200, {"path": "/copy", "mode": "0755", "recursive": True}, ids=self.ids)
        self.ask("POST", act + "chmod", 404, {"path": "/nowhere", "mode": "0755"}, ids=self.ids)
        for body in ({"path": "/act"}, {"path": "/act", "mode": "7777"}, {"path": "/act", "mode": "-1"}):
            self.ask("POST", act + "chmod", 400, body, ids=self.ids)
        repaired = self.ask("POST", act + "repair", 200, {"path": "/act"}, ids=self.ids).json
        self.assertEqual(1, repaired["changed"])
        self.ask("POST", act + "repair", 404, {"path": "/nowhere"}, ids=self.ids)
        self.ask("POST", act + "repair", 400, {"path": "act"}, ids=self.ids)
        self.ask("DELETE", "/v1/workspaces/{ws}/files/{path}", 204, ids=self.of("act/%FF"))

    def searches(self, act):
        found = self.ask("POST", act + "glob", 200, {"pattern": "**/*", "path": "/copy"}, ids=self.ids).json
        self.assertEqual(["/copy/of/a"], [e["path"] for e in found["matches"]])
        found = self.ask("POST", act + "glob", 200, {"pattern": "**/*", "path": "/copy", "directories": True}, ids=self.ids).json
        self.assertEqual([("/copy/of", "directory"), ("/copy/of/a", "file"), ("/copy/of/deep", "directory")],
                         [(e["path"], e["type"]) for e in found["matches"]])
        found = self.ask("POST", act + "glob", 200, {"pattern": "*", "directories": True}, ids=self.ids).json["matches"]
        self.assertIn("/copy", [e["path"] for e in found])
        self.assertFalse({"/usr", "/etc", "/proc", "/bin"} & {e["path"] for e in found})
        self.ask("POST", act + "glob", 400, {"pattern": "*", "directories": "yes"}, ids=self.ids)
        self.ask("POST", act + "glob", 200, {"pattern": "*", "limit": 1, "path_b64": "L2NvcHk="}, ids=self.ids)
        self.ask("POST", act + "glob", 404, {"pattern": "*", "path": "/nowhere"}, ids=self.ids)
        for route, body in (("glob", {"pattern": "**/*", "limit": 1000000}), ("grep", {"pattern": "root"})):
            paths = [e.get("path", "") for e in self.ask("POST", act + route, 200, body, ids=self.ids).json["matches"]]
            self.assertEqual([], [p for p in paths if p.startswith(("/usr", "/bin", "/lib", "/etc", "/proc", "/dev"))][:3])
        for body in ({}, {"pattern": ""}, {"pattern": "a", "limit": 0}, {"pattern": "a", "path": "x"}, {"pattern": "a", "nope": 1}):
            self.ask("POST", act + "glob", 400, body, ids=self.ids)
        self.ask("POST", act + "glob", 400, json.dumps({"pattern": "a/../b"}).encode(), ids=self.ids)
        self.ask("PUT", "/v1/workspaces/{ws}/files/{path}", 200, b"a\n\xffneedle\nb\n" + b"needle" * 10000, ids=self.of("copy/of/a"))
        for body in ({"pattern": "needle", "path": "/copy", "context": 1}, {"pattern": "NEE.*$", "regex": True, "ignore_case": True, "limit": 1},
                     {"pattern": "needle", "globs": ["*.c", "!*.h"]}, {"pattern": "needle", "path_b64": "L2NvcHkvb2YvYQ=="}):
            self.ask("POST", act + "grep", 200, body, ids=self.ids)
        for body in ({"pattern": ""}, {}, {"pattern": "a", "context": 101}, {"pattern": "a", "globs": "x"}, {"pattern": "a", "globs": [""]}):
            self.ask("POST", act + "grep", 400, body, ids=self.ids)
        self.ask("POST", act + "grep", 400, json.dumps({"pattern": "(", "regex": True}).encode(), ids=self.ids)
        self.ask("POST", act + "grep", 404, {"pattern": "a", "path": "/nowhere"}, ids=self.ids)

    def many(self, act):
        wrote = self.ask("POST", act + "write", 200, {"files": [
            {"path": "/many/a", "content": "same"}, {"path_b64": "L21hbnkv/w==", "content_b64": "c2FtZQ==", "mode": "0600"},
            {"path": "/many", "content": "x"}, {"path": "/many/empty", "content": ""}]}, ids=self.ids).json["results"]
        self.assertEqual([True, True, None, True], [one.get("ok") for one in wrote])
        self.ask("POST", act + "write", 200, {"files": []}, ids=self.ids)
        for body in ({}, {"files": {}}, {"files": ["/a"]}, {"files": [{"content": "x"}]}, {"files": [{"path": "/a", "mode": "rwx"}]},
                     {"files": [{"path": "/a", "nope": 1}]}, {"files": [{"path": "a", "content": ""}]}, {"files": [{"path": "/a"}]}):
            self.ask("POST", act + "write", 400, body, ids=self.ids)
        read_ = self.ask("POST", act + "read", 200, {"paths": ["/many/a", {"path_b64": "L21hbnkv/w=="}, "/many", "/nowhere"]}, ids=self.ids)
        self.assertEqual(["same", "same", None, None], [one.get("content") for one in read_.json["results"]])
        for body in ({}, {"paths": "/a"}, {"paths": [5]}, {"paths": ["a"]}):
            self.ask("POST", act + "read", 400, body, ids=self.ids)
        tree = self.ask("POST", act + "inventory", 200, {"path": "/many"}, ids=self.ids).bytes.splitlines()
        summary = json.loads(tree[-1])["summary"]
        self.assertEqual((3, 1), (summary["files"], len(summary["duplicates"])))
        self.ask("POST", act + "inventory", 200, {"path": "/many", "hash": False}, ids=self.ids)
        self.ask("POST", act + "inventory", 404, {"path": "/nowhere"}, ids=self.ids)
        self.ask("POST", act + "inventory", 400, {"path": "/many", "hash": "md5"}, ids=self.ids)
        for kind in ("tar", "zip"):
            archive = self.ask("GET", "/v1/workspaces/{ws}/files/{path}", 200, ids=self.of("many"), query=f"?archive={kind}").bytes
            done = self.ask("POST", act + "unpack", 200, archive, query=f"?path=/from/{kind}&format={kind}", ids=self.ids).json
            self.assertEqual(3, done["files"])
            self.ask("POST", act + "unpack", 400, archive[:-30] if kind == "zip" else archive[:700], query=f"?path=/cut&format={kind}", ids=self.ids)
        self.ask("POST", act + "unpack", 400, b"x", query="?format=rar", ids=self.ids)
        form, head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx\r\n--b--\r\n', {"Content-Type": "multipart/form-data; boundary=b"}
        self.assertTrue(self.ask("POST", act + "upload", 200, form, query="?path=/form", ids=self.ids, headers=head).json["results"][0]["ok"])
        self.ask("POST", act + "upload", 400, form[:-3], ids=self.ids, headers=head)
        self.ask("POST", act + "upload", 400, form, ids=self.ids)

    def archives(self):
        archive = self.ask("GET", "/v1/workspaces/{ws}/backup", 200, ids=self.ids)
        done = self.ask("POST", "/v1/workspaces/{ws}/restore", 200, archive.bytes, ids=self.ids)
        self.assertEqual(0, done.json["exit_code"])
        bad = self.ask("POST", "/v1/workspaces/{ws}/restore", 200, b"no archive", ids=self.ids)
        self.assertNotEqual(0, bad.json["exit_code"])
        os.makedirs(f"{self.daemon.state}/main/threads/found")
        self.ask("POST", "/v1/adopt", 200, {"dry_run": True})
        self.ask("POST", "/v1/adopt", 200, {"path": "main", "owner": "alice"})
        self.ask("POST", "/v1/adopt", 400, {"nope": 1})

    def sandboxes(self):
        made = self.ask("POST", "/v1/sandbox", 200, {"exposedPorts": [3000], "timeoutMs": 5, "mounts": []}).json
        for body in ({"mounts": [{}]}, {"id": "a/b"}, {"nope": 1}):
            self.ask("POST", "/v1/sandbox", 400, body)
        ids = {"ws": made["id"], "path": "workspace/a"}
        self.assertTrue(self.ask("GET", "/v1/sandbox/{ws}/running", 200, ids=ids).json["running"])
        self.ask("PUT", "/v1/sandbox/{ws}/file/{path}", 200, b"content", ids=ids)
        self.assertEqual(b"content", self.ask("GET", "/v1/sandbox/{ws}/file/{path}", 200, ids=ids).bytes)
        self.ask("GET", "/v1/sandbox/{ws}/file/{path}", 403, ids={**ids, "path": "etc/passwd"})
        self.ask("GET", "/v1/sandbox/{ws}/file/{path}", 404, ids={**ids, "path": "workspace/none"})
        said = self.daemon.post(f"/v1/sandbox/{made['id']}/exec", {"argv": ["cat", "a"]})
        self.seen["POST", "/v1/sandbox/{ws}/exec"].add(said.status)  # its data is no JSON: judged here
        self.assertEqual("text/event-stream", said.headers["Content-Type"])
        self.assertEqual(b'event: stdout\ndata: Y29udGVudA==\n\nevent: exit\ndata: {"exit_code":0}\n\n', said.bytes)
        for body in ({"argv": []}, {"argv": ["id"], "timeout_ms": 0}, {"argv": ["id"], "env": {}}):
            self.ask("POST", "/v1/sandbox/{ws}/exec", 400, body, ids=ids)
        archive = self.ask("POST", "/v1/sandbox/{ws}/persist", 200, ids=ids, query="?excludes=b,c").bytes
        self.ask("POST", "/v1/sandbox/{ws}/persist", 400, ids=ids, query="?excludes=" + "a,b," * 33)
        self.ask("POST", "/v1/sandbox/{ws}/hydrate", 200, archive, ids=ids)
        self.ask("POST", "/v1/sandbox/{ws}/hydrate", 400, b"no archive", ids=ids)
        self.ask("GET", "/v1/sandbox/{ws}/pty", 426, ids=ids)
        self.ask("DELETE", "/v1/sandbox/{ws}", 200, ids=ids)
        self.ask("DELETE", "/v1/sandbox/{ws}", 404, ids=ids)
        self.ask("PUT", "/v1/sandbox/{ws}/file/{path}", 409, b"content", ids=ids)

    def refusals(self):
        """What is refused before a handler sees it, on every route."""
        approve = self.ask("POST", "/v1/keys", 201, {"owner": "carol", "scopes": ["approve"]}).json["key"]
        absent = {"ws": "nobodys", "exec": "x" + "a" * 26, "key": "k" + "a" * 26, "context": "c" + "a" * 26, "path": "a/b", "port": 8000,
                  "plan": "p" + "a" * 26, "name": "nobodys"}
        for path, item in DOCUMENT.whole["paths"].items():
            works = {method.upper() for method in METHODS & set(item)}
            works |= {"HEAD"} if "GET" in works and not path.endswith(("/backup", "/attach", "/pty")) else set()
            for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "QUERY", "PROPFIND"} - works:
                with self.subTest(path=path, method=method):
                    answer = self.daemon.request(method, path.format(**absent))
                    self.assertEqual(405, answer.status, answer.bytes)
                    self.assertEqual(works, set(answer.headers["Allow"].split(", ")))
        self.assertEqual(404, self.daemon.request("BREW", "/nowhere").status)
        self.assertEqual(401, self.over_tcp("BREW", "/v1/workspaces").status)
        for (method, path), operation in DOCUMENT.operations():
            with self.subTest(route=f"{method} {path}"):
                at = path.format(**absent)
                body = b"{}" if "requestBody" in operation else None
                content = DOCUMENT.follow(operation.get("requestBody", {})).get("content", {})
                if operation.get("security") == []:
                    continue
                self.judge(method, path, self.over_tcp(method, at, body=body))
                self.judge(method, path, self.over_tcp(method, at, [("Authorization", "Bearer ck_" + "a" * 52)], body))
                self.judge(method, path, self.over_tcp(method, at, [("Authorization", f"Bearer {approve}")], body))
                if "{" in path and (method, path) not in MADE_BY_IT:
                    self.ask(method, path, 404, body, ids=absent)
                if "{exec}" in path:
                    body = {"signal": "TERM"} if path.endswith("/signal") else body
                    self.ask(method, path, 404, body, ids={**absent, **self.ids})
                if "application/json" in content and "{exec}" not in path:
                    for bad in (b"{", b"5" if path.endswith("/plans") else b"[]", b'{"a":1,"a":2}', b"\xff"):
                        self.ask(method, path, 400, bad, ids={**absent, **self.ids})


if __name__ == "__main__":
    unittest.main(verbosity=0)
