// SPDX-License-Identifier: Apache-2.0
// The deepagents backend: the operations, names, sizes and errors of LangChain's standard tests of sandboxes, and planned writes, of
// which a person decides in LangGraph's interrupt.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Annotation, Command, MemorySaver, START, StateGraph, interrupt } from "@langchain/langgraph";
import { createDeepAgent, isSandboxBackend, isSandboxProtocol } from "deepagents";
import { InvalidRequest, Local } from "carrel";
import { CarrelBackend } from "carrel/deepagents";
import { Scripted } from "./scripted.js";

/** @type {Local} */
let local;
before(async () => { local = await Local.start(); });
after(() => local?.close());

let count = 0;
/** @param {import("carrel/deepagents").CarrelBackendOptions} [options] */
const backendOf = (options = {}) => new CarrelBackend(`desk-${++count}`, { client: local.client, ...options });
/** @param {string} content */
const bytes = (content) => new TextEncoder().encode(content);
/** @param {{ path: string }[] | undefined} items */
const paths = (items) => (items ?? []).map((item) => item.path).sort();
/** @param {string | Uint8Array | undefined} content */
const unnumbered = (content) => String(content).split("\n").map((line) => line.slice(7)).join("\n");

test("it is what deepagents takes for a sandbox, and lives until it is closed", async () => {
    const backend = backendOf();
    assert.ok(isSandboxBackend(/** @type {any} */ (backend)) && isSandboxProtocol(backend));
    assert.equal(backend.id, `desk-${count}`);
    assert.equal(backend.isRunning, true);
    await backend.write("/kept", "1");
    await backend.close();
    assert.equal(backend.isRunning, false);
    assert.match((await backend.execute("true")).output, /closed/);
    assert.equal(await (await local.client.workspace(backend.id)).files.read("/kept"), "1");
    assert.throws(() => new CarrelBackend(""), InvalidRequest);
    const ws = await local.client.workspace("by-object");
    assert.equal((await new CarrelBackend(ws).execute("echo hi")).output, "hi\n");
});

test("execute: output, status, order of both streams, variables, a program that is missing", async () => {
    const backend = backendOf();
    assert.deepEqual(await backend.execute("echo hello"), { output: "hello\n", exitCode: 0, truncated: false });
    assert.equal((await backend.execute("exit 42")).exitCode, 42);
    assert.equal((await backend.execute("echo a; echo b; echo c")).output, "a\nb\nc\n");
    assert.equal((await backend.execute("echo 1; sleep 0.1; echo 2 >&2; sleep 0.1; echo 3")).output, "1\n2\n3\n");
    assert.equal((await backend.execute("export X=1; echo $X")).output, "1\n");
    const missing = await backend.execute("no-such-program-here");
    assert.equal(missing.exitCode, 127);
    assert.match(missing.output, /not found/);
    const large = await backend.execute("python3 -c \"print('x' * 512000)\"");
    assert.deepEqual([large.output.length, large.truncated, large.exitCode], [512001, false, 0]);
    assert.equal((await backendOf({ timeout: 0.2 }).execute("sleep 100")).exitCode, 124);
    const refused = await backend.execute("python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'");
    assert.match(refused.output, /\[refused: use the network/);
    const endless = await backend.execute("echo first; yes 0123456789 | head -n 5000000; echo last; exit 2");
    assert.deepEqual([endless.truncated, endless.exitCode, endless.output.startsWith("first\n0123456789\n"), endless.output.endsWith("0123456789\nlast\n")],
        [true, 2, true, true]);
    assert.match(endless.output, /\n\[\.\.\. 44514251 bytes are left out here \.\.\.\]\n/);
    assert.ok(endless.output.length < 11 << 20);
    const five = await Promise.all([1, 2, 3, 4, 5].map((n) => backend.execute(`head -c 512000 /dev/zero | tr '\\0' ${n}`)));
    assert.deepEqual(five.map((one) => [one.output.length, one.output[0]]), [1, 2, 3, 4, 5].map((n) => [512000, String(n)]));
});

describe("write", () => {
    test("makes, replaces, and makes the directories above", async () => {
        const backend = backendOf();
        assert.deepEqual(await backend.write("/a/b/c.txt", "one"), { path: "/a/b/c.txt", filesUpdate: null });
        assert.deepEqual(await backend.write("/a/b/c.txt", "two"), { path: "/a/b/c.txt", filesUpdate: null });
        assert.equal((await backend.execute("cat /a/b/c.txt")).output, "two");
    });

    for (const [what, path, content] of /** @type {[string, string, string][]} */ ([
        ["an empty file", "/empty", ""], ["signs of the shell", "/$x `y` \"z\" '.txt", "$HOME `id` \"'\\ \t"], ["spaces", "/a b/c d.txt", "x"],
        ["unicode", "/日本/é.txt", "日本語 🎉\n"], ["slashes in a row", "//a///b.txt", "x"], ["newlines only", "/n.txt", "\n\n\n\n\n"],
        ["a thousand lines", "/long.txt", Array.from({ length: 1000 }, (_, n) => `line ${n}\n`).join("")],
    ])) {
        test(`${what} come back as they were`, async () => {
            const backend = backendOf();
            assert.equal((await backend.write(path, content)).error, undefined);
            const [one] = await backend.downloadFiles([path]);
            assert.deepEqual(one?.error, null);
            assert.equal(Buffer.from(one?.content ?? []).toString(), content);
        });
    }

    test("what is no text comes in base64; what cannot be written says why", async () => {
        const backend = backendOf();
        await backend.write("/p.png", Buffer.from([137, 80, 0, 255]).toString("base64"));
        const { content, mimeType } = await backend.read("/p.png");
        assert.deepEqual([Buffer.from(/** @type {Uint8Array} */ (content)), mimeType], [Buffer.from([137, 80, 0, 255]), "image/png"]);
        assert.match((await backend.write("/usr/x", "1")).error ?? "", /^Failed to write to \/usr\/x: ./);
        assert.match((await backend.write("/p.png/x.txt", "1")).error ?? "", /^Failed to write/);
    });
});

describe("read", () => {
    /** @type {CarrelBackend} */
    let backend;
    before(async () => {
        backend = backendOf();
        await backend.write("/ten", Array.from({ length: 10 }, (_, n) => `line ${n + 1}`).join("\n") + "\n");
    });

    test("numbered lines, pages of them, and where the next begins", async () => {
        assert.deepEqual(await backend.read("/ten", 0, 2), { content: "     1\tline 1\n     2\tline 2\n", mimeType: "text/plain", startLine: 1, endLine: 2,
            totalLines: 10, nextOffset: 2 });
        assert.deepEqual(await backend.read("/ten", 8, 5), { content: "     9\tline 9\n    10\tline 10\n", mimeType: "text/plain", startLine: 9, endLine: 10,
            totalLines: 10 });
        assert.equal((await backend.read("/ten", -5, 1)).content, "     1\tline 1\n");
        assert.equal((await backend.read("/ten")).endLine, 10);
        assert.equal((await backend.read("/ten", 0, 0)).content, "");
        assert.deepEqual(await backend.read("/ten", 10, 5), { error: "File '/ten': Line offset 10 exceeds file length (10 lines)" });
        assert.match((await backend.read("/ten", 99, 5)).error ?? "", /exceeds file length/);
    });

    test("empty, missing, a directory, unicode, a line without its end, long lines", async () => {
        await backend.write("/empty", "");
        assert.match(String((await backend.read("/empty")).content), /empty contents/);
        assert.match((await backend.read("/none")).error ?? "", /not found/);
        assert.match((await backend.readRaw("/none")).error ?? "", /not found/);
        assert.match((await backend.read("/ten/below")).error ?? "", /not found/);
        await backend.execute("mkdir /dir");
        assert.match((await backend.read("/dir")).error ?? "", /not a file/);
        await backend.write("/u.md", "日本\nno end");
        assert.deepEqual([unnumbered((await backend.read("/u.md")).content), (await backend.read("/u.md")).mimeType], ["日本\nno end\n", "text/plain"]);
        await backend.write("/wide", "x".repeat(3000) + "\n" + "y".repeat(700_000) + "\nz\n");
        assert.equal(unnumbered((await backend.read("/wide", 0, 1)).content), "x".repeat(3000) + "\n");
        const raw = (await backend.readRaw("/u.md")).data;
        assert.equal(raw?.content, "日本\nno end");
        assert.match(raw?.created_at ?? "", /^\d{4}-/);
    });

    test("a large file in pages, and all of it at once", async () => {
        const text = Array.from({ length: 60_000 }, (_, n) => `${n} \\ "quoted" \t ${"x".repeat(n % 40)}`).join("\n") + "\n";
        await backend.write("/large", text);
        assert.equal(unnumbered((await backend.read("/large", 0, Number.MAX_SAFE_INTEGER)).content), text);
        let seen = "";
        for (let at = /** @type {number | undefined} */ (0); at !== undefined;) {
            const page = await backend.read("/large", at, 7000);
            seen += unnumbered(page.content);
            at = page.nextOffset;
        }
        assert.equal(seen, text);
    });

    test("bytes that are no text", async () => {
        await backend.uploadFiles([["/odd.txt", new Uint8Array([0, 255, 1])]]);
        const { content, mimeType } = await backend.read("/odd.txt");
        assert.deepEqual([Buffer.from(/** @type {Uint8Array} */ (content)), mimeType], [Buffer.from([0, 255, 1]), "application/octet-stream"]);
    });
});

test("edit", async () => {
    const backend = backendOf();
    const edit = async (/** @type {string} */ was, /** @type {string} */ old, /** @type {string} */ now, all = false) => {
        await backend.uploadFiles([["/f", bytes(was)]]);
        const said = await backend.edit("/f", old, now, all);
        return [said.error ?? said.occurrences, Buffer.from((await backend.downloadFiles(["/f"]))[0]?.content ?? []).toString()];
    };
    assert.deepEqual(await edit("a b c", "b", "x"), [1, "a x c"]);
    assert.deepEqual(await edit("a a a", "a", "x", true), [3, "x x x"]);
    assert.deepEqual(await edit("a a a", "a", "x"), ["Multiple occurrences found in '/f'. Use replaceAll=true to replace all.", "a a a"]);
    assert.deepEqual(await edit("a b", "z", "x"), ["String not found in file '/f'", "a b"]);
    assert.deepEqual(await edit("a b", "a", "a"), [1, "a b"]);
    assert.deepEqual(await edit("a b", "z", "z"), ["String not found in file '/f'", "a b"]);
    assert.deepEqual(await edit("a b", "a ", ""), [1, "b"]);
    assert.deepEqual(await edit("", "", "new"), [1, "new"]);
    assert.deepEqual(await edit("", "", ""), [0, ""]);
    assert.deepEqual(await edit("x", "", "new"), ["oldString must not be empty unless the file is empty", "x"]);
    assert.deepEqual(await edit("one\ntwo\nthree\n", "one\ntwo", "1\n2"), [1, "1\n2\nthree\n"]);
    assert.deepEqual(await edit("one\r\ntwo\r\n", "one\ntwo", "1\n2"), [1, "1\r\n2\r\n"]);
    assert.deepEqual(await edit("$x .* [a] \\d", "$x .* [a] \\d", "$& $1"), [1, "$& $1"]);
    assert.deepEqual(await edit("日本 🎉", "🎉", "é"), [1, "日本 é"]);
    assert.deepEqual(await edit("a\n".repeat(30_000), "a\n", "bb\n", true), [30_000, "bb\n".repeat(30_000)]);
    assert.match((await backend.edit("/none", "a", "b")).error ?? "", /^Error: File '\/none' not found/);
    assert.match((await backend.edit("/none", "", "b")).error ?? "", /not found/);
});

test("ls", async () => {
    const backend = backendOf();
    await backend.uploadFiles([["/d/a.txt", bytes("12345")], ["/d/sub/b.txt", bytes("")], ["/d/.hidden", bytes("")], ["/d/日本 (1)[2].txt", bytes("")]]);
    const { files = [], error } = await backend.ls("/d");
    assert.equal(error, undefined);
    assert.deepEqual(paths(files), ["/d/.hidden", "/d/a.txt", "/d/sub/", "/d/日本 (1)[2].txt"]);
    const [sub] = files.filter((one) => one.is_dir);
    assert.equal(sub?.path, "/d/sub/");
    const a = files.find((one) => one.path === "/d/a.txt");
    assert.deepEqual([a?.size, a?.is_dir], [5, false]);
    assert.match(a?.modified_at ?? "", /^\d{4}-\d\d-\d\dT/);
    assert.deepEqual(paths((await backend.ls("/d/")).files), paths(files));
    assert.deepEqual(await backend.ls("/none"), { files: [] });
    await backend.execute("mkdir /void");
    assert.deepEqual(await backend.ls("/void"), { files: [] });
    await backend.uploadFiles(Array.from({ length: 50 }, (_, n) => [`/fifty/${n}`, bytes("x")]));
    assert.equal((await backend.ls("/fifty")).files?.length, 50);
    assert.deepEqual((await backend.ls("/d'; touch /evil; '")).files, []);
    assert.equal((await backend.execute("test -e /evil")).exitCode, 1);
});

test("names that are no text are told as such, and are no trouble", async () => {
    const backend = backendOf();
    await backend.execute("mkdir n; echo hit > \"$(printf 'n/\\377.txt')\"");
    const found = [(await backend.ls("/n")).files?.[0]?.path, (await backend.glob("*", "/n")).files?.[0]?.path, (await backend.grep("hit", "/n")).matches?.[0]?.path];
    assert.deepEqual(found, ["/n/\ufffd.txt", "\ufffd.txt", "/n/\ufffd.txt"]);
});

test("glob: below the directory, directories too, a star within a name", async () => {
    const backend = backendOf();
    await backend.uploadFiles(["a.py", "b.txt", "sub/c.py", "sub/deep/d.py", ".dot", "f1.txt", "f2.txt", "f3.txt", "x{y}.txt"].map((name) => [`/g/${name}`, bytes("1")]));
    /** @param {string} pattern @param {string} [path] */
    const glob = async (pattern, path = "/g") => paths((await backend.glob(pattern, path)).files);
    assert.deepEqual(await glob("*.py"), ["a.py"]);
    assert.deepEqual(await glob("**/*.py"), ["a.py", "sub/c.py", "sub/deep/d.py"]);
    assert.deepEqual(await glob("*"), [".dot", "a.py", "b.txt", "f1.txt", "f2.txt", "f3.txt", "sub", "x{y}.txt"]);
    assert.deepEqual((await backend.glob("*", "/g")).files?.filter((one) => one.is_dir).map((one) => one.path), ["sub"]);
    assert.deepEqual(await glob(".*"), [".dot"]);
    assert.deepEqual(await glob("f[1-2].txt"), ["f1.txt", "f2.txt"]);
    assert.deepEqual(await glob("f[!1-2].txt"), ["f3.txt"]);
    assert.deepEqual(await glob("f?.txt"), ["f1.txt", "f2.txt", "f3.txt"]);
    assert.deepEqual(await glob("sub/*.py"), ["sub/c.py"]);
    assert.deepEqual(await glob("*/*.py"), ["sub/c.py"]);
    assert.deepEqual(await glob("sub/**/*.py"), ["sub/c.py", "sub/deep/d.py"]);
    assert.deepEqual(await glob("{a,b}.{py,txt}"), ["a.py", "b.txt"]);
    assert.deepEqual(await glob("x{y}.txt"), ["x{y}.txt"]);
    assert.deepEqual(await glob("*.none"), []);
    assert.deepEqual(await glob("*", "/none"), []);
    assert.deepEqual(await glob("g/*.py", "/"), ["g/a.py"]);
    assert.deepEqual(await glob("**/d.py", "/"), ["g/sub/deep/d.py"]);
    assert.deepEqual(await glob("*/a.py", "/"), ["g/a.py"]);
    assert.equal((await backend.glob("[", "/g")).error, undefined);
    const one = (await backend.glob("a.py", "/g")).files?.[0];
    assert.deepEqual([one?.size, one?.is_dir, /^\d{4}-/.test(one?.modified_at ?? "")], [1, false, true]);
});

test("grep: literal, with numbers, below a directory or in a file, and a bound", async () => {
    const backend = backendOf();
    await backend.uploadFiles([["/s/a.py", bytes("def f(x: str | int):\n    pass\n# TODO str\n")], ["/s/sub/b.py", bytes("str\n")], ["/s/c.txt", bytes("$100 [a-z]*\nSTR\n日本\n")],
        ["/s/p.pdf", bytes("str\n")]]);
    assert.deepEqual(await backend.grep("str | int", "/s"), { matches: [{ path: "/s/a.py", line: 1, text: "def f(x: str | int):" }], truncated: false });
    assert.deepEqual(paths((await backend.grep("str", "/s")).matches), ["/s/a.py", "/s/a.py", "/s/sub/b.py"]);
    assert.deepEqual(paths((await backend.grep("str", "/s", "*.py")).matches), ["/s/a.py", "/s/a.py", "/s/sub/b.py"]);
    assert.deepEqual((await backend.grep("STR", null, "*.txt")).matches, [{ path: "/s/c.txt", line: 2, text: "STR" }]);
    assert.equal((await backend.grep("$100 [a-z]*", "/s")).matches?.length, 1);
    assert.equal((await backend.grep("日本", "/s")).matches?.[0]?.line, 3);
    assert.deepEqual((await backend.grep("str", "/s/sub/b.py")).matches, [{ path: "/s/sub/b.py", line: 1, text: "str" }]);
    assert.deepEqual(await backend.grep("nowhere at all", "/s"), { matches: [], truncated: false });
    assert.deepEqual(await backend.grep("x", "/none"), { matches: [] });
    const two = await backend.grep("str", "/s", "*.py", 2);
    assert.deepEqual([two.matches?.length, two.truncated], [2, true]);
    assert.equal((await backend.grep("str", "/s", "*.py", 3)).truncated, false);
    await backend.uploadFiles([["/many", bytes("hit\n".repeat(5000))]]);
    assert.equal((await backend.grep("hit", "/many")).matches?.length, 5000);
});

test("uploads and downloads: order, bytes, sizes, errors", async () => {
    const backend = backendOf();
    const every = Uint8Array.from({ length: 256 }, (_, n) => n);
    const large = new Uint8Array(10 << 20).fill(7);
    assert.deepEqual(await backend.uploadFiles([["/u/1", every], ["no", every], ["/u/2", large], ["/u/3", bytes("a\0\r\n")], ["/u/2/x", every]]), [
        { path: "/u/1", error: null }, { path: "no", error: "invalid_path" }, { path: "/u/2", error: null }, { path: "/u/3", error: null },
        { path: "/u/2/x", error: "invalid_path" },
    ]);
    assert.equal((await backend.execute("wc -c < /u/2")).output.trim(), String(10 << 20));
    await backend.execute("mkdir /u/dir; touch /u/shut; chmod 000 /u/shut");
    const got = await backend.downloadFiles(["/u/3", "/u/2", "/u/none", "/u/dir", "rel", "/u/shut", "/u/1"]);
    assert.deepEqual(got.map((one) => one.error), [null, null, "file_not_found", "is_directory", "invalid_path", "permission_denied", null]);
    assert.deepEqual(got.map((one) => one.content === null ? null : Buffer.from(one.content).length), [4, 10 << 20, null, null, null, null, 256]);
    assert.deepEqual(Buffer.from(got[6]?.content ?? []), Buffer.from(every));
    assert.deepEqual(await backend.uploadFiles([]), []);
    const huge = new Uint8Array(40 << 20).fill(1);
    assert.deepEqual((await backend.uploadFiles([["/h1", huge], ["/h2", huge]])).map((one) => one.error), [null, null]);
    assert.deepEqual((await backend.downloadFiles(["/h1", "/h2"])).map((one) => one.content?.length), [40 << 20, 40 << 20]);
});

test("delete", async () => {
    const backend = backendOf();
    await backend.uploadFiles([["/d/a", bytes("")], ["/d/b/c", bytes("")], ["/f", bytes("")]]);
    assert.deepEqual(await backend.delete("/f"), { path: "/f", filesUpdate: null });
    assert.deepEqual(await backend.delete("/d"), { path: "/d", filesUpdate: null });
    assert.equal((await backend.delete("/d")).error, "Error: '/d' not found");
    assert.match((await backend.delete("/usr")).error ?? "", /^Error deleting file/);
});

// --- with an agent ---

test("an agent writes, edits, looks and runs", async () => {
    const backend = backendOf();
    const model = new Scripted([["write_file", { file_path: "/n.py", content: "print(6 * 7)\n" }], ["edit_file", { file_path: "/n.py", old_string: "6 * 7", new_string: "2 + 2" }],
        ["read_file", { file_path: "/n.py" }], ["execute", { command: "python3 n.py" }], ["ls", { path: "/" }], "done"]);
    const agent = createDeepAgent({ model: /** @type {any} */ (model), backend });
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: "go" }] }, { recursionLimit: 100 });
    const said = messages.map((message) => JSON.stringify(message.content)).join("\n");
    assert.match(said, /print\(2 \+ 2\)/);
    assert.match(said, /\\?"?4\\n/);
    assert.equal((await backend.execute("cat n.py")).output, "print(2 + 2)\n");
});

test("500 files reorganised in a plan, approved by a person in the interrupt, applied, undone", async () => {
    const id = `planned-${++count}`;
    const person = await local.client.workspace(id);
    const names = Array.from({ length: 500 }, (_, n) => `/in/${n % 5}-${n}.txt`);
    assert.ok((await person.files.writeMany(names.map((name) => [name, name]))).every((one) => one === undefined));
    const backend = new CarrelBackend(id, { client: local.client, writes: "plan" });
    const model = new Scripted([["execute", { command: "cd /in && for k in 0 1 2 3 4; do mkdir -p ../out/$k && mv $k-* ../out/$k/; done" }],
        ["write_file", { file_path: "/out/README", content: "sorted" }], ["ls", { path: "/out/3" }], "done"]);
    const agent = createDeepAgent({ model: /** @type {any} */ (model), backend });
    const State = Annotation.Root({ state: Annotation(/** @type {any} */ (undefined)) });
    const graph = new StateGraph(State)
        .addNode("work", async () => {
            await agent.invoke({ messages: [{ role: "user", content: "sort" }] }, { recursionLimit: 100 });
            return {};
        })
        .addNode("ask", async () => ({ state: (await backend.review(interrupt))?.state }))
        .addEdge(START, "work").addEdge("work", "ask").compile({ checkpointer: new MemorySaver() });
    const config = { configurable: { thread_id: id } };

    const asked = /** @type {any} */ (await graph.invoke({}, config)).__interrupt__[0].value;
    assert.match(asked.action_requests[0].description, /in\/3-3\.txt -> out\/3\/3-3\.txt/);
    assert.match(asked.action_requests[0].description, /sorted/);
    assert.equal(asked.action_requests[0].args.counts.move, 500);
    assert.equal((await person.files.glob("in/*")).length, 500); // nothing has changed
    const again = /** @type {any} */ (await graph.invoke(new Command({ resume: "yes" }), config)).__interrupt__[0].value;
    assert.deepEqual(again, asked); // that was no answer
    assert.equal((await person.files.glob("in/*")).length, 500);

    const done = await graph.invoke(new Command({ resume: { decisions: [{ type: "approve" }] } }), config);
    assert.equal(/** @type {any} */ (done).state, "applied");
    assert.equal((await person.files.glob("out/*/*")).length, 500);
    assert.equal((await person.files.ls("/in")).length, 0);
    const [plan] = await person.plans({ state: "applied" });
    assert.equal((await plan?.undo())?.state, "undone");
    assert.equal((await person.files.glob("in/*")).length, 500);
    assert.equal(await person.files.exists("/out/README"), false);

    await backend.write("/more", "1");
    await assert.rejects(backend.review(() => true), /resume with/); // rejected with a reason
    await assert.rejects(backend.review(() => { throw new Error("the graph waits"); }), /the graph waits/);
    const rejected = await backend.review(() => ({ decisions: [{ type: "reject", message: "no" }] }));
    assert.ok(["rejected", "discarded"].includes(rejected?.state ?? ""), rejected?.state);
    assert.equal(await person.files.exists("/more"), false);
    assert.equal(await backend.review(() => { throw new Error("nothing to ask"); }), undefined);
    await backend.close();
    assert.ok((await local.client.keys()).filter((key) => String(key.name).startsWith("carrel for TypeScript")).every((key) => key.revoked));
});

test("left out, the workspace is that of the thread; with planned writes, too", async () => {
    const backend = new CarrelBackend({ client: local.client });
    assert.ok(isSandboxBackend(/** @type {any} */ (backend))); // createDeepAgent looks before any thread runs
    await assert.rejects(backend.workspace(), /thread_id/);
    const threads = [`thread-${++count}`, `thread-${++count}`];
    /** @param {CarrelBackend} backend @param {string} who */
    const agentOf = (backend, who) => createDeepAgent({ backend, model: /** @type {any} */ (new Scripted([["write_file", { file_path: "/who", content: who }],
        ["execute", { command: "echo ran >> who" }], "done"])) });
    const go = { messages: [{ role: "user", content: "go" }] };
    await Promise.all(threads.map((id) => agentOf(backend, id).invoke(go, { recursionLimit: 100, configurable: { thread_id: id } })));
    for (const id of threads) assert.equal(await (await local.client.workspace(id, { create: false })).files.read("/who"), `${id}ran\n`);

    const planned = new CarrelBackend({ client: local.client, writes: "plan" });
    const State = Annotation.Root({ state: Annotation(/** @type {any} */ (undefined)) });
    const graph = new StateGraph(State)
        .addNode("work", async () => { await agentOf(planned, "both").invoke(go, { recursionLimit: 100 }); return {}; })
        .addNode("ask", async () => ({ state: (await planned.review(interrupt))?.state }))
        .addEdge(START, "work").addEdge("work", "ask").compile({ checkpointer: new MemorySaver() });
    const id = `thread-${++count}`;
    const config = { configurable: { thread_id: id } };
    await graph.invoke({}, config);
    const ws = await planned.forThread(id);
    assert.equal(await ws.files.exists("/who"), false);
    assert.equal(/** @type {any} */ (await graph.invoke(new Command({ resume: { decisions: [{ type: "approve" }] } }), config)).state, "applied");
    assert.equal(await ws.files.read("/who"), "bothran\n");
    await planned.close();
});

test("of several plans that wait none is taken for the one that was approved", async () => {
    const id = `planned-${++count}`;
    const yes = () => ({ decisions: [{ type: "approve" }] });
    const [one, two] = [0, 1].map(() => new CarrelBackend(id, { client: local.client, writes: "plan" }));
    await one?.write("/one", "1");
    const seen = await one?.closePlan();
    await two?.write("/two", "2");
    await two?.closePlan();
    const later = new CarrelBackend(id, { client: local.client, writes: "plan" }); // it has asked nobody yet
    await assert.rejects(later.review(yes), /several plans/);
    const ws = await local.client.workspace(id);
    assert.deepEqual([...await ws.files.glob("/{one,two}")], []);
    assert.equal((await later.review(yes, seen?.id))?.state, "applied");
    assert.deepEqual([...await ws.files.glob("/{one,two}")], ["/one"]);
    assert.equal(await later.review(yes, seen?.id), undefined); // decided already
    for (const backend of [one, two, later]) await backend?.close();
});

test("planned writes are asked for properly", async () => {
    assert.throws(() => backendOf({ writes: /** @type {any} */ ("plans") }), InvalidRequest);
    assert.throws(() => backendOf({ agentKey: "k" }), InvalidRequest);
    await assert.rejects(backendOf().review(() => undefined), InvalidRequest);
});
